package control

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/xdsd/internal/report"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

// proxyReconciler keeps the status of ProxyServers.
type proxyReconciler struct {
	client   client.Client
	live     client.Reader // asks the API server itself
	known    *knowledge
	said     *verdicts
	recorder events.EventRecorder
	beats    *heartbeats
}

func (r *proxyReconciler) register(m ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(m).Named("proxyserver").
		For(&v1alpha1.ProxyServer{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(byLabel(v1alpha1.LabelProxyServer))).
		WatchesRawSource(changesOf(r.known, proxyMeanings)).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of ProxyServers: %w", err)
	}
	return nil
}

// byLabel has the object reconciled that a pod's label names.
func byLabel(label string) handler.MapFunc {
	return func(_ context.Context, pod client.Object) []ctrl.Request {
		name := pod.GetLabels()[label]
		if name == "" {
			return nil
		}
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: pod.GetNamespace(), Name: name}}}
	}
}

// Reconcile is reconcile.Reconciler's.
func (r *proxyReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	object := &v1alpha1.ProxyServer{}
	if err := r.client.Get(ctx, request.NamespacedName, object); err != nil {
		if apierrors.IsNotFound(err) {
			r.beats.forget(request.NamespacedName)
		}
		r.said.setReady("ProxyServer", request.NamespacedName, nil)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	x := r.known.now()
	if x == nil {
		return ctrl.Result{}, nil // what changes that comes here again
	}
	f := &proxyFacts{object: object, proxy: x.proxies[request.String()]}
	if f.proxy != nil {
		f.problems = x.problems[f.proxy.Ref]
		f.service, f.serviceIP = x.proxyService(f.proxy)
	}
	var err error
	if f.pods, err = podsOf(ctx, r.client, object.Namespace, client.MatchingLabels{v1alpha1.LabelProxyServer: object.Name}); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.prune(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	f.silent, err = r.beats.silent(ctx, request.NamespacedName, time.Now())
	return ctrl.Result{RequeueAfter: r.beats.interval}, errors.Join(r.write(ctx, f), err)
}

// podsOf are the pods with the labels, without those that are going or have ended.
func podsOf(ctx context.Context, c client.Reader, namespace string, labels client.MatchingLabels) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(namespace), labels); err != nil {
		return nil, fmt.Errorf("listing pods in %s: %w", namespace, err)
	}
	pods := list.Items[:0]
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// prune takes away the entries of replicas whose pods are gone.
func (r *proxyReconciler) prune(ctx context.Context, f *proxyFacts) error {
	there := map[string]bool{}
	for _, pod := range f.pods {
		there[pod.Name] = true
	}
	kept := f.object.Status.Replicas[:0:0]
	for _, replica := range f.object.Status.Replicas {
		if !there[replica.Pod] {
			gone, err := r.gone(ctx, client.ObjectKey{Namespace: f.object.Namespace, Name: replica.Pod})
			if err != nil {
				return err
			}
			if gone {
				err := report.Status(ctx, r.client, "ProxyServer", client.ObjectKeyFromObject(f.object), struct{}{}, serve.ReplicaManager(replica.Pod))
				if err != nil {
					return fmt.Errorf("deleting the entry of %s: %w", replica.Pod, err)
				}
				continue
			}
		}
		kept = append(kept, replica)
	}
	f.object.Status.Replicas = kept
	return nil
}

// gone reports whether a pod is not there. What is cached may be behind a pod that has
// just started, and its entry would be lost until it has something new to say.
func (r *proxyReconciler) gone(ctx context.Context, key client.ObjectKey) (bool, error) {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := r.live.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the pod of a replica: %w", err)
	}
	return false, nil
}

// write applies the status if it is another one than before.
func (r *proxyReconciler) write(ctx context.Context, f *proxyFacts) error {
	before, now := f.object.Status, proxyStatus(f)
	now.Replicas, before.Replicas = nil, nil
	r.said.setReady("ProxyServer", client.ObjectKeyFromObject(f.object), now.Conditions)
	if reflect.DeepEqual(before, now) {
		return nil
	}
	if err := report.Status(ctx, r.client, "ProxyServer", client.ObjectKeyFromObject(f.object), now, manager); err != nil {
		return err
	}
	announce(r.recorder, f.object, before.Conditions, now.Conditions)
	return nil
}
