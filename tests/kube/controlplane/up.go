package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

const patience = 2 * time.Minute

const (
	// hostOfMachine is this host as a machine in the emulator's user network finds it.
	hostOfMachine = "10.0.2.2"
	// service is where pods are told that the API server is.
	service = "10.96.0.1"
)

// audit has each call of tidegate-kube in the log `audit`, those that change something with what
// they said.
const audit = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - {level: Request, users: ["system:serviceaccount:tidegate:tidegate-kube"], verbs: [patch, create]}
  - {level: Metadata, users: ["system:serviceaccount:tidegate:tidegate-kube"]}
  - {level: None}
`

// plane is where everything of one control plane lies.
type plane struct {
	dir    string
	server string
	ca     []byte
	parts  []*exec.Cmd
	// machine is the node that a kubelet elsewhere is.
	machine string
	// options are for every part of Kubernetes, apiserver for that one alone.
	options, apiserver []string
}

// up starts every part in the order in which they need each other, and stops them when standard
// input ends. A line of it is how long the API server is away, as in `60s`; another `ready` says
// that it is back.
func up(arguments []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	nodes := flags.Int("nodes", 0, "nodes without a machine")
	machine := flags.String("machine", "", "the name of a node in an emulated machine")
	plane := &plane{}
	flags.Func("emulated", "an older minor version to act as, such as 1.34", func(version string) error {
		plane.options = append(plane.options, "--emulated-version="+version)
		return nil
	})
	flags.Func("apiserver", "another option of kube-apiserver", func(option string) error {
		plane.apiserver = append(plane.apiserver, option)
		return nil
	})
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New(usage)
	}
	// The parts die with the thread that started them.
	plane.dir, plane.machine = flags.Arg(0), *machine
	defer plane.stop()
	client, err := plane.start()
	if err != nil {
		return fmt.Errorf("%w; see the logs in %s", err, plane.dir)
	}
	if err := startNodes(client, *nodes); err != nil {
		return err
	}
	fmt.Printf("ready %s\n", plane.kubeconfig("admin"))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		away, err := time.ParseDuration(lines.Text())
		if err != nil {
			return err
		}
		if err := plane.outage(client, away); err != nil {
			return err
		}
		fmt.Printf("ready %s\n", plane.kubeconfig("admin"))
	}
	// After an error it stays, with the logs.
	plane.stop()
	return os.RemoveAll(plane.dir)
}

// outage kills the API server and starts it again after a while.
func (p *plane) outage(client *kubernetes.Clientset, away time.Duration) error {
	at := slices.IndexFunc(p.parts, func(part *exec.Cmd) bool { return part.Args[1] == "kube-apiserver" })
	part := p.parts[at]
	p.parts = slices.Delete(p.parts, at, at+1)
	_ = part.Process.Kill()
	_ = part.Wait()
	time.Sleep(away)
	if err := p.run(part.Args[1], part.Args[2:]...); err != nil {
		return err
	}
	return p.untilReady(client)
}

func (p *plane) start() (*kubernetes.Clientset, error) {
	ports, err := freePorts(5)
	if err != nil {
		return nil, err
	}
	local := func(at int) string { return fmt.Sprintf("http://127.0.0.1:%d", ports[at]) }
	p.server = fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	if err := p.writeKeys(); err != nil {
		return nil, err
	}
	if err := p.run("etcd", local(0), local(1), filepath.Join(p.dir, "etcd")); err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(p.dir, name) }
	err = p.run("kube-apiserver", append(slices.Concat(p.options, p.apiserver),
		"--etcd-servers="+local(0), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", ports[2]), "--endpoint-reconciler-type=none",
		"--tls-cert-file="+file("server.crt"), "--tls-private-key-file="+file("server.key"), "--cert-dir="+p.dir,
		"--token-auth-file="+file("tokens.csv"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=10.96.0.0/24", "--service-account-issuer=https://controlplane.test",
		"--service-account-key-file="+file("accounts.key"), "--service-account-signing-key-file="+file("accounts.key"),
		"--allow-privileged=true", "--audit-policy-file="+file("audit.yaml"), "--audit-log-path="+file("audit"),
		"--audit-log-maxsize=10000")...)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig("admin"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 2000, 4000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if err := p.untilReady(client); err != nil {
		return nil, err
	}
	if err := p.run("kube-scheduler", append(p.options,
		"--kubeconfig="+p.kubeconfig("system:kube-scheduler"), "--leader-elect=false", "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", ports[3]), "--cert-dir="+p.dir,
		"--kube-api-qps=2000", "--kube-api-burst=4000")...); err != nil {
		return nil, err
	}
	if err := p.run("kube-controller-manager", append(p.options,
		"--kubeconfig="+p.kubeconfig("system:kube-controller-manager"), "--leader-elect=false", "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", ports[4]), "--cert-dir="+p.dir, "--use-service-account-credentials=true",
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--service-account-private-key-file="+file("accounts.key"), "--root-ca-file="+file("server.crt"))...); err != nil {
		return nil, err
	}
	hasAccount := func(ctx context.Context) bool {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	}
	return client, p.wait("kube-controller-manager", hasAccount)
}

func (p *plane) untilReady(client *kubernetes.Clientset) error {
	return p.wait("kube-apiserver", func(ctx context.Context) bool {
		answer, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil && string(answer) == "ok"
	})
}

// writeKeys makes the server's certificate, the key of service accounts, and a token and a
// kubeconfig for each part.
func (p *plane) writeKeys() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.ParseIP(hostOfMachine), net.ParseIP(service)}, []string{"localhost"})
	if err != nil {
		return err
	}
	p.ca = certificate
	accounts, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(accounts)}
	files := map[string][]byte{"audit.yaml": []byte(audit), "server.crt": certificate, "server.key": key, "accounts.key": pem.EncodeToMemory(block)}
	tokens := ""
	groups := map[string]string{"admin": ",system:masters", "system:kube-scheduler": "", "system:kube-controller-manager": ""}
	if p.machine != "" {
		groups["system:node:"+p.machine] = ",system:nodes"
	}
	for user, group := range groups {
		token := user + "-token"
		tokens += fmt.Sprintf("%s,%s,%s%s\n", token, user, user, group)
		if err := p.writeKubeconfig(user, token); err != nil {
			return err
		}
	}
	files["tokens.csv"] = []byte(tokens)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(p.dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (p *plane) kubeconfig(user string) string {
	return filepath.Join(p.dir, user+".kubeconfig")
}

func (p *plane) writeKubeconfig(user, token string) error {
	config := clientcmdapi.NewConfig()
	server := p.server
	if strings.HasPrefix(user, "system:node:") {
		server = strings.Replace(server, "127.0.0.1", hostOfMachine, 1)
	}
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: p.ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: user}
	config.CurrentContext = "test"
	return clientcmd.WriteToFile(*config, p.kubeconfig(user))
}

// run starts this program again as one of the parts, with a log of its own.
func (p *plane) run(name string, arguments ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(p.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	part := exec.Command(self, append([]string{name}, arguments...)...)
	part.Stdout, part.Stderr = log, log
	part.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := part.Start(); err != nil {
		return err
	}
	p.parts = append(p.parts, part)
	return nil
}

func (p *plane) wait(what string, isDone func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !isDone(ctx) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not ready within %s", what, patience)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

func (p *plane) stop() {
	for at := len(p.parts) - 1; at >= 0; at-- {
		_ = p.parts[at].Process.Kill()
		_ = p.parts[at].Wait()
	}
}

func freePorts(count int) ([]int, error) {
	ports := make([]int, count)
	for at := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports[at] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
