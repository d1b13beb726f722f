// A Kubernetes control plane on this machine's loopback, for tests: the real etcd, kube-apiserver,
// kube-scheduler and kube-controller-manager in one program, and as many nodes without a machine as
// are asked for.
//
//	controlplane up [OPTION...] DIR   runs until its standard input ends; prints `ready KUBECONFIG`
//	controlplane kube-apiserver ...   one of them, as its own command line says
//	controlplane etcd URL PEER DIR
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const usage = "usage: controlplane up [-nodes N] [-machine NAME] [-emulated VERSION] [-apiserver OPTION]... DIR"

func main() {
	if len(os.Args) < 2 {
		fail(2, errors.New(usage))
	}
	var command *cobra.Command
	switch name := os.Args[1]; name {
	case "up":
		if err := up(os.Args[2:]); err != nil {
			fail(1, err)
		}
		return
	case "etcd":
		if err := etcd(os.Args[2:]); err != nil {
			fail(1, err)
		}
		return
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kube-controller-manager":
		command = manager.NewControllerManagerCommand()
	default:
		fail(2, fmt.Errorf("%s: no such command", name))
	}
	os.Args = os.Args[1:]
	command.SetArgs(os.Args[1:])
	os.Exit(cli.Run(command))
}

func fail(code int, err error) {
	fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
	os.Exit(code)
}
