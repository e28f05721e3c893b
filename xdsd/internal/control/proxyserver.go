package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/report"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

// proxyReconciler writes the status of ProxyServers.
type proxyReconciler struct {
	reconciler

	states states[proxyState]
	// heartbeatInterval is the replicas' heartbeat interval, and changeTime how long they may apply a change.
	heartbeatInterval, changeTime time.Duration
}

func (r *proxyReconciler) register(m ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(m).Named("proxyserver").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(byLabel(v1alpha1.LabelProxyServer))).
		WatchesRawSource(changes(r.store, proxyFingerprints, changedProxy)).
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
	s := r.store.Snapshot()
	if s == nil {
		return ctrl.Result{}, nil // the first snapshot enqueues the object again
	}
	object, ref := r.store.ProxyServer(request.String()), model.ParseRef("ProxyServer", request.String())
	if object == nil {
		r.states.forget(request.String())
		r.problems.forget(ref)
		return ctrl.Result{}, nil
	}
	p := s.ProxyServer(request.String())
	if p == nil || p.UID != object.UID || p.Generation != object.Generation {
		return ctrl.Result{}, nil // the next snapshot enqueues the object again
	}
	f := &proxyFacts{object: object.DeepCopy(), proxy: p, problems: problemsOf(s, p.Ref)}
	f.service, f.serviceIP = proxyService(s, p)
	var err error
	if f.pods, err = podsOf(ctx, r.client, object.Namespace, client.MatchingLabels{v1alpha1.LabelProxyServer: object.Name}); err != nil {
		return ctrl.Result{}, err
	}
	state, now, again := r.states.get(request.String()), time.Now(), r.heartbeatInterval
	watched := slices.ContainsFunc(r.store.Status().Resources, func(w watch.ResourceStatus) bool {
		return strings.HasPrefix(w.Resource, "proxyservers") && w.Connected
	})
	f.silent = state.silent(object, now, watched, r.heartbeatInterval)
	if p.Infra == nil {
		again = min(again, wait.Jitter(r.probeInterval*9/10, 0.2))
		facts := &vlanFacts{object: p.Ref}
		if a, err := v1alpha1.ParseAddress(object.Spec.NetworkConfig.ServerIP); err == nil {
			facts.own = append(facts.own, a)
		}
		f.observed = r.problems.observe(ctx, r.probe, f.pods, facts, nil)
	} else {
		r.problems.forgetSite(p.Ref)
	}
	err = r.prune(ctx, f)
	if err == nil {
		status := proxyStatus(f)
		if state.keepReady(&f.object.Status, &status, now, r.changeTime) {
			again = min(again, r.changeTime)
		}
		err = r.write(ctx, f.object, status)
	}
	if err := r.problems.recordStatus(ref, err); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
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

// prune deletes the status entries of replicas whose pods do not exist. It reads pods from the API server, because the cache may not
// contain one that has just started: its entry would be missing until the replica has something new to report.
func (r *proxyReconciler) prune(ctx context.Context, f *proxyFacts) error {
	var kept []v1alpha1.ReplicaStatus
	for _, replica := range f.object.Status.Replicas {
		if slices.ContainsFunc(f.pods, func(p corev1.Pod) bool { return p.Name == replica.Pod }) {
			kept = append(kept, replica)
			continue
		}
		pod := &metav1.PartialObjectMetadata{}
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		err := r.live.Get(ctx, client.ObjectKey{Namespace: f.object.Namespace, Name: replica.Pod}, pod)
		if err == nil {
			kept = append(kept, replica)
			continue
		}
		if apierrors.IsNotFound(err) {
			err = report.Status(ctx, r.client, "ProxyServer", client.ObjectKeyFromObject(f.object), struct{}{}, serve.ReplicaManager(replica.Pod))
		}
		if err != nil {
			return fmt.Errorf("deleting the status entry of replica %s: %w", replica.Pod, err)
		}
	}
	f.object.Status.Replicas = kept
	return nil
}

// write applies the status if it has changed, and records Events of changed conditions.
func (r *proxyReconciler) write(ctx context.Context, object *v1alpha1.ProxyServer, now v1alpha1.ProxyServerStatus) error {
	before := object.Status
	now.Replicas, before.Replicas = nil, nil
	changed, err := applyChange(ctx, r.client, model.Ref{Kind: "ProxyServer", Namespace: object.Namespace, Name: object.Name}, before, now, fieldManager)
	if changed && err == nil {
		recordEvents(r.recorder, object, before.Conditions, now.Conditions)
	}
	return err
}
