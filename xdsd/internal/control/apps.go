package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/report"
)

// appsManager is the field manager of Infra.status.appsIngress.
const appsManager = manager + "-apps"

// appsReconciler keeps Infra.status.appsIngress. It speaks to the management cluster alone,
// so that no hosted cluster keeps it waiting.
type appsReconciler struct {
	client   client.Client
	known    *knowledge
	said     *verdicts
	outcomes *outcomes

	mu    sync.Mutex
	since map[client.ObjectKey]time.Time // when an Infra was first seen without an address
}

func (r *appsReconciler) register(m ctrl.Manager) error {
	r.since = map[client.ObjectKey]time.Time{}
	err := ctrl.NewControllerManagedBy(m).Named("apps").
		For(&v1alpha1.Infra{}).
		WatchesRawSource(changesOf(r.known, infraMeanings)).
		WatchesRawSource(r.outcomes.source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of applications: %w", err)
	}
	return nil
}

// Reconcile is reconcile.Reconciler's.
func (r *appsReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	object := &v1alpha1.Infra{}
	if err := r.client.Get(ctx, request.NamespacedName, object); err != nil {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !object.Spec.AppsIngress.IsEnabled() {
		r.forget(request.NamespacedName)
		if object.Status.AppsIngress == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, report.Status(ctx, r.client, "Infra", request.NamespacedName, struct{}{}, appsManager)
	}
	x := r.known.now()
	if x == nil {
		return ctrl.Result{}, nil // what changes that comes here again
	}
	i := x.infras[request.String()]
	if i == nil || !i.WantsApps() {
		return ctrl.Result{}, nil // the same: of two watches one is ahead
	}
	f := &appsFacts{object: object, problems: x.problemsOf(i), outcome: r.outcomes.get(request.NamespacedName), now: time.Now()}
	if i.Cluster != nil && i.Cluster.Kind == "HostedCluster" {
		f.cluster = i.Cluster
	}
	f.since, f.synced = r.waitsSince(request.NamespacedName, f), r.synced(f)
	status, next := appsStatus(f)
	r.said.setApps(request.NamespacedName, status)
	result := ctrl.Result{RequeueAfter: syncEvery}
	if !next.IsZero() {
		result.RequeueAfter = max(next.Sub(f.now), time.Millisecond)
	}
	if before := object.Status.AppsIngress; before != nil && equalStatus(before, status) {
		return result, nil
	}
	err := report.Status(ctx, r.client, "Infra", request.NamespacedName, struct {
		AppsIngress *v1alpha1.AppsIngressStatus `json:"appsIngress"`
	}{status}, appsManager)
	if err != nil {
		return ctrl.Result{}, err
	}
	return result, nil
}

// synced is when the source of the addresses was last current: now, where nothing is in
// the way.
func (r *appsReconciler) synced(f *appsFacts) time.Time {
	if f.cluster == nil || f.cluster.Apps == nil {
		return time.Time{}
	}
	if f.source() == v1alpha1.AppsIngressSourceHostedService && !f.cluster.Apps.Followed {
		return time.Time{}
	}
	return f.now.Add(-r.known.store.Status().Age())
}

// waitsSince is when waiting for an address began: when the Service was made, else when the
// Infra was first seen without one.
func (r *appsReconciler) waitsSince(key client.ObjectKey, f *appsFacts) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.cluster != nil && f.cluster.Apps != nil && len(f.cluster.Apps.Addresses) > 0 {
		delete(r.since, key)
		return f.now
	}
	if r.since[key].IsZero() {
		r.since[key] = f.now
	}
	if created := f.outcome.created; !created.IsZero() && created.Before(r.since[key]) {
		return created
	}
	return r.since[key]
}

func (r *appsReconciler) forget(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.since, key)
	r.said.setApps(key, nil)
}

// wantsHosted reports whether an Infra is the one that has its hosted cluster's
// applications looked after.
func wantsHosted(object *v1alpha1.Infra, i *model.Infra) bool {
	apps := object.Spec.AppsIngress
	return object.DeletionTimestamp == nil && apps.IsEnabled() && (apps.Source == "" || apps.Source == v1alpha1.AppsIngressSourceHostedService) &&
		i != nil && i.Cluster != nil && i.Cluster.Kind == "HostedCluster" && i.Cluster.Apps != nil &&
		i.Cluster.Apps.Infra != nil && *i.Cluster.Apps.Infra == i.Ref
}
