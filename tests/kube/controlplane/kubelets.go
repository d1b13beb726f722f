package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// kubelets do for nodes without a machine what a kubelet does: they take over an extended resource
// from the capacity into what is allocatable, say that the node is ready, run the pods that are
// bound or reject them, and end those that are deleted.
type kubelets struct {
	client *kubernetes.Clientset
	nodes  cache.Store
	pods   cache.Indexer
	// queue has the nodes on which something changed; none of them is worked on twice at a time.
	queue workqueue.TypedRateLimitingInterface[string]
}

// byNode is the index of pods by the node that they are bound to.
const byNode = "node"

func nodeOf(object any) ([]string, error) {
	return []string{object.(*corev1.Pod).Spec.NodeName}, nil
}

func startKubelets(ctx context.Context, client *kubernetes.Clientset) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes, pods := factory.Core().V1().Nodes().Informer(), factory.Core().V1().Pods().Informer()
	if err := pods.AddIndexers(cache.Indexers{byNode: nodeOf}); err != nil {
		return err
	}
	again := workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)
	k := &kubelets{client: client, nodes: nodes.GetStore(), pods: pods.GetIndexer(), queue: workqueue.NewTypedRateLimitingQueue(again)}
	follow(nodes, func(object any) { k.queue.Add(object.(*corev1.Node).Name) })
	follow(pods, func(object any) { k.queue.Add(object.(*corev1.Pod).Spec.NodeName) })
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range atOnce {
		go k.work(ctx)
	}
	return nil
}

func follow(informer cache.SharedIndexInformer, act func(any)) {
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    act,
		UpdateFunc: func(_, object any) { act(object) },
	})
}

func (k *kubelets) work(ctx context.Context) {
	for {
		name, _ := k.queue.Get()
		if err := k.keep(ctx, name); err != nil {
			complain(fmt.Errorf("%s: %w", name, err))
			k.queue.AddRateLimited(name)
		} else {
			k.queue.Forget(name)
		}
		k.queue.Done(name)
	}
}

func (k *kubelets) keep(ctx context.Context, name string) error {
	object, is, err := k.nodes.GetByKey(name)
	if err != nil || !is || !isOurs(name) {
		return err
	}
	node := object.(*corev1.Node)
	errs := []error{k.takeOver(ctx, node)}
	objects, err := k.pods.ByIndex(byNode, name)
	if err != nil {
		return err
	}
	var running, coming []*corev1.Pod
	for _, object := range objects {
		pod := object.(*corev1.Pod)
		switch {
		case pod.DeletionTimestamp != nil:
			errs = append(errs, k.end(ctx, pod))
		case pod.Status.Phase == corev1.PodRunning:
			running = append(running, pod)
		case pod.Status.Phase == corev1.PodPending:
			coming = append(coming, pod)
		}
	}
	for _, pod := range coming {
		lacked, err := k.lacks(ctx, node, append(running, pod))
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if lacked == "" {
			running = append(running, pod)
		}
		errs = append(errs, k.start(ctx, pod, lacked))
	}
	return errors.Join(errs...)
}

// lacks looks again before it says that something lacks. The node's state comes here by one watch
// of all nodes, which can be behind that of the pods by more than the watch of a kubelet, which is
// of its own node alone.
func (k *kubelets) lacks(ctx context.Context, node *corev1.Node, pods []*corev1.Pod) (string, error) {
	if lacks(node, pods) == "" {
		return "", nil
	}
	node, err := k.client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return lacks(node, pods), nil
}

// lacks is the extended resource of which the pods request more than is allocatable. One that is
// absent is not looked at.
func lacks(node *corev1.Node, pods []*corev1.Pod) string {
	for name, amount := range node.Status.Allocatable {
		if !strings.Contains(string(name), "/") {
			continue
		}
		amount = amount.DeepCopy()
		for _, pod := range pods {
			amount.Sub(resource.PodRequests(pod, resource.PodResourcesOptions{})[name])
		}
		if amount.Sign() < 0 {
			return string(name)
		}
	}
	return ""
}

// start runs a pod, or rejects it for the resource that it lacks.
func (k *kubelets) start(ctx context.Context, pod *corev1.Pod, lacked string) error {
	status := map[string]any{"phase": corev1.PodRunning, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	if lacked != "" {
		status = map[string]any{"phase": corev1.PodFailed, "reason": "OutOf" + lacked}
	}
	// What was decided on is what is written: another state of the pod is looked at again.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": pod.ResourceVersion}, "status": status})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (k *kubelets) end(ctx context.Context, pod *corev1.Pod) error {
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// takeOver does what kubelet does with an extended resource that others wrote into the capacity,
// and with a node that the controller-manager gave up while its lease could not be renewed.
func (k *kubelets) takeOver(ctx context.Context, node *corev1.Node) error {
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
	status := map[string]any{}
	if len(change) > 0 {
		status["allocatable"] = change
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			status["conditions"] = []corev1.NodeCondition{ready()}
		}
	}
	if len(status) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
