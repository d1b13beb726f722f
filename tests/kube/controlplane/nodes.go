package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// prefix is what the names of nodes without a machine begin with; others have a kubelet.
const prefix = "node-"

func isOurs(node string) bool {
	return strings.HasPrefix(node, prefix)
}

// leaseRenewal is below the 50 s after which the controller-manager gives a node up.
const leaseRenewal = 15 * time.Second

// startNodes makes nodes and does for them what a kubelet does as far as the API server sees: it renews their leases, takes
// over an extended resource from the capacity into what is allocatable, runs the pods that are bound, and ends those that are
// deleted.
func startNodes(client *kubernetes.Clientset, count int) error {
	if count == 0 {
		return nil
	}
	ctx := context.Background()
	for at := range count {
		if err := makeNode(ctx, client, fmt.Sprintf(prefix+"%d", at)); err != nil {
			return err
		}
	}
	go renewLeases(ctx, client, count)
	factory := informers.NewSharedInformerFactory(client, 0)
	follow(factory.Core().V1().Nodes().Informer(), func(object any) { takeOver(ctx, client, object.(*corev1.Node)) })
	follow(factory.Core().V1().Pods().Informer(), func(object any) { keepPod(ctx, client, object.(*corev1.Pod)) })
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return nil
}

func follow(informer cache.SharedIndexInformer, act func(any)) {
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    act,
		UpdateFunc: func(_, object any) { act(object) },
	})
}

func makeNode(ctx context.Context, client *kubernetes.Clientset, name string) error {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("16"),
		corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "NoMachine", LastTransitionTime: metav1.Now(),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources, Conditions: []corev1.NodeCondition{ready},
		},
	}
	if err := renew(ctx, client, name); err != nil {
		return err
	}
	_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}

func renewLeases(ctx context.Context, client *kubernetes.Clientset, count int) {
	for range time.Tick(leaseRenewal) {
		for at := range count {
			complain(renew(ctx, client, fmt.Sprintf(prefix+"%d", at)))
		}
	}
}

func renew(ctx context.Context, client *kubernetes.Clientset, name string) error {
	leases := client.CoordinationV1().Leases("kube-node-lease")
	now := metav1.NewMicroTime(time.Now())
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	}
	lease = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-node-lease"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &now,
		},
	}
	_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	return err
}

// takeOver does what kubelet does with an extended resource that others wrote into the capacity.
func takeOver(ctx context.Context, client *kubernetes.Clientset, node *corev1.Node) {
	if !isOurs(node.Name) {
		return
	}
	change := map[string]any{}
	for name, amount := range node.Status.Capacity {
		if allocatable, is := node.Status.Allocatable[name]; !is || allocatable.Cmp(amount) != 0 {
			change[string(name)] = amount.String()
		}
	}
	for name := range node.Status.Allocatable {
		if _, is := node.Status.Capacity[name]; !is {
			change[string(name)] = nil
		}
	}
	if len(change) == 0 {
		return
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"allocatable": change}})
	complain(err)
	_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	complain(err)
}

func keepPod(ctx context.Context, client *kubernetes.Clientset, pod *corev1.Pod) {
	pods := client.CoreV1().Pods(pod.Namespace)
	switch {
	case !isOurs(pod.Spec.NodeName):
	case pod.DeletionTimestamp != nil:
		err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		_ = err // It may be gone already.
	case pod.Status.Phase == corev1.PodPending:
		patch := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
		_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		complain(err)
	}
}

func complain(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "controlplane: nodes: %v\n", err)
	}
}
