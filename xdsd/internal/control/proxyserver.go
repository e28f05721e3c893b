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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

// proxyReconciler writes the status of ProxyServers.
type proxyReconciler struct {
	client     client.Client
	statuses   *statusWriter
	sites      *Sites
	probe      *prober
	live       client.Reader // reads from the API server instead of the cache
	indexes    *indexCache
	metrics    *statusMetrics
	recorder   events.EventRecorder
	heartbeats *heartbeats
	changes    *specChanges
	// probeInterval is that of a ProxyServer without an Infra.
	probeInterval time.Duration
}

func (r *proxyReconciler) register(m ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(m).Named("proxyserver").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(byLabel(v1alpha1.LabelProxyServer))).
		WatchesRawSource(changes(r.indexes, proxyFingerprints, itself[*v1alpha1.ProxyServer])).
		WithOptions(controllerOptions(maxConcurrentReconciles)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of ProxyServers: %w", err)
	}
	return nil
}

// byLabel maps a pod to the object that its label names.
func byLabel(label string) handler.MapFunc {
	return func(_ context.Context, pod client.Object) []ctrl.Request {
		name := pod.GetLabels()[label]
		if name == "" {
			return nil
		}
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: pod.GetNamespace(), Name: name}}}
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *proxyReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	x := r.indexes.current()
	if x == nil {
		return ctrl.Result{}, nil // the first snapshot enqueues the object again
	}
	object := r.indexes.store.ProxyServer(request.String())
	if object == nil {
		r.heartbeats.forget(request.NamespacedName)
		r.changes.forget(request.NamespacedName)
		r.metrics.setReady("ProxyServer", request.NamespacedName, nil)
		r.sites.forget(model.Ref{Kind: "ProxyServer", Namespace: request.Namespace, Name: request.Name})
		r.statuses.forget("ProxyServer", request.NamespacedName, "")
		return ctrl.Result{}, nil
	}
	p := x.proxy(object)
	if p == nil {
		return ctrl.Result{}, nil
	}
	f := &proxyFacts{object: object.DeepCopy(), proxy: p, problems: x.problems[p.Ref]}
	f.service, f.serviceIP = x.proxyService(p)
	var err error
	if f.pods, err = podsOf(ctx, r.client, object.Namespace, client.MatchingLabels{v1alpha1.LabelProxyServer: object.Name}); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.prune(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	f.silent, err = r.heartbeats.silent(ctx, request.NamespacedName, time.Now())
	again := r.heartbeats.interval
	if p.Infra == nil {
		again = min(again, wait.Jitter(r.probeInterval*9/10, 0.2))
		facts := &vlanFacts{object: p.Ref}
		if a, err := v1alpha1.ParseAddress(object.Spec.NetworkConfig.ServerIP); err == nil {
			facts.own = append(facts.own, a)
		}
		f.observed = r.sites.observe(ctx, r.probe, f.pods, facts)
	} else {
		r.sites.forget(p.Ref)
	}
	f.changing = func(was, is *metav1.Condition) bool {
		changing := r.changes.inProgress(request.NamespacedName, was, is, time.Now())
		if changing {
			again = min(again, r.changes.time)
		}
		return changing
	}
	err = errors.Join(r.write(ctx, f), err)
	return ctrl.Result{RequeueAfter: again}, err
}

// podsOf returns the pods with the labels, except those that are being deleted or have terminated.
func podsOf(ctx context.Context, c client.Reader, namespace string, labels client.MatchingLabels) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(namespace), labels); err != nil {
		return nil, fmt.Errorf("listing pods in namespace %s: %w", namespace, err)
	}
	pods := list.Items[:0]
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// prune deletes the status entries of replicas whose pods do not exist.
func (r *proxyReconciler) prune(ctx context.Context, f *proxyFacts) error {
	present := map[string]bool{}
	for _, pod := range f.pods {
		present[pod.Name] = true
	}
	kept := f.object.Status.Replicas[:0:0]
	for _, replica := range f.object.Status.Replicas {
		if !present[replica.Pod] {
			deleted, err := r.podDeleted(ctx, client.ObjectKey{Namespace: f.object.Namespace, Name: replica.Pod})
			if err != nil {
				return err
			}
			if deleted {
				err := r.statuses.write(ctx, "ProxyServer", client.ObjectKeyFromObject(f.object), struct{}{}, serve.ReplicaManager(replica.Pod))
				if err != nil {
					return fmt.Errorf("deleting the status entry of replica %s: %w", replica.Pod, err)
				}
				continue
			}
		}
		kept = append(kept, replica)
	}
	f.object.Status.Replicas = kept
	return nil
}

// podDeleted reports whether a pod does not exist. It reads from the API server, because the cache may not contain
// a pod that has just started: its entry would be missing until the replica has something new to report.
func (r *proxyReconciler) podDeleted(ctx context.Context, key client.ObjectKey) (bool, error) {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := r.live.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading pod %s of a replica: %w", key, err)
	}
	return false, nil
}

// write applies the status if it has changed, and records Events of changed conditions.
func (r *proxyReconciler) write(ctx context.Context, f *proxyFacts) error {
	before, now := f.object.Status, proxyStatus(f)
	now.Replicas, before.Replicas = nil, nil
	r.metrics.setReady("ProxyServer", client.ObjectKeyFromObject(f.object), now.Conditions)
	if reflect.DeepEqual(before, now) {
		r.statuses.forget("ProxyServer", client.ObjectKeyFromObject(f.object), fieldManager)
		return nil
	}
	if err := r.statuses.write(ctx, "ProxyServer", client.ObjectKeyFromObject(f.object), now, fieldManager); err != nil {
		return err
	}
	recordEvents(r.recorder, f.object, before.Conditions, now.Conditions)
	return nil
}
