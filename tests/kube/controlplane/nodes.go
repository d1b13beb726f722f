package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// prefix is what the names of nodes without a machine begin with; others have a kubelet.
const prefix = "node-"

// atOnce is how many nodes are worked on at a time.
const atOnce = 16

// leaseRenewal is below the 50 s after which the controller-manager gives a node up.
const leaseRenewal = 15 * time.Second

// startNodes makes nodes, and does for them what a kubelet does as far as the API server sees.
func startNodes(client *kubernetes.Clientset, count int) error {
	if count == 0 {
		return nil
	}
	ctx := context.Background()
	if err := each(ctx, count, func(name string) error { return makeNode(ctx, client, name) }); err != nil {
		return err
	}
	go func() {
		for range time.Tick(leaseRenewal) {
			complain(each(ctx, count, func(name string) error { return renewLease(ctx, client, name) }))
		}
	}()
	return startKubelets(ctx, client)
}

// each acts on every node, and tells of the first failure.
func each(ctx context.Context, count int, act func(name string) error) error {
	errs := make([]error, count)
	workqueue.ParallelizeUntil(ctx, atOnce, count, func(at int) { errs[at] = act(fmt.Sprintf(prefix+"%d", at)) })
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func isOurs(node string) bool {
	return strings.HasPrefix(node, prefix)
}

func makeNode(ctx context.Context, client *kubernetes.Clientset, name string) error {
	now := metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &now,
		},
	}
	if _, err := client.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return err
	}
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("16"),
		corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources, Conditions: []corev1.NodeCondition{ready()},
		},
	}
	_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}

func ready() corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "NoMachine", LastTransitionTime: metav1.Now(),
	}
}

func renewLease(ctx context.Context, client *kubernetes.Clientset, name string) error {
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).
		Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func complain(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "controlplane: nodes: %v\n", err)
	}
}
