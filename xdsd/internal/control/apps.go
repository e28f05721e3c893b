package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// appsFieldManager is the field manager of Infra.status.appsIngress.
const appsFieldManager = fieldManager + "-apps"

// appsReconciler writes Infra.status.appsIngress. It uses only the API of the management cluster, so that an
// unresponsive hosted cluster does not block it.
type appsReconciler struct {
	statuses *statusWriter
	indexes  *indexCache
	metrics  *statusMetrics
	outcomes *outcomes

	mu           sync.Mutex
	waitingSince map[client.ObjectKey]time.Time // when an Infra was first seen without an address
}

func (r *appsReconciler) register(m ctrl.Manager) error {
	r.waitingSince = map[client.ObjectKey]time.Time{}
	err := ctrl.NewControllerManagedBy(m).Named("apps").
		WatchesRawSource(changes(r.indexes, infraFingerprints, itself[*v1alpha1.Infra])).
		WatchesRawSource(r.outcomes.source()).
		WithOptions(controllerOptions(maxConcurrentReconciles)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of the apps ingress: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (r *appsReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	object, _ := r.indexes.store.Infra(request.String())
	if object == nil || !object.Spec.AppsIngress.IsEnabled() {
		r.forget(request.NamespacedName)
		if object == nil || object.Status.AppsIngress == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, r.statuses.write(ctx, "Infra", request.NamespacedName, struct{}{}, appsFieldManager)
	}
	x := r.indexes.current()
	if x == nil {
		return ctrl.Result{}, nil // the first snapshot enqueues the object again
	}
	i := x.infra(object)
	if i == nil {
		return ctrl.Result{}, nil
	}
	f := &appsFacts{object: object, problems: x.problemsOf(i), outcome: r.outcomes.get(request.NamespacedName), now: time.Now()}
	if i.Cluster != nil && i.Cluster.Kind == "HostedCluster" {
		f.cluster = i.Cluster
	}
	f.waitingSince, f.synced = r.waitStart(request.NamespacedName, f), r.synced(f)
	status, next := appsStatus(f)
	r.metrics.setApps(request.NamespacedName, status)
	result := ctrl.Result{RequeueAfter: syncInterval}
	if !next.IsZero() {
		result.RequeueAfter = max(next.Sub(f.now), time.Millisecond)
	}
	if before := object.Status.AppsIngress; before != nil && equalStatus(before, status) {
		return result, nil
	}
	err := r.statuses.write(ctx, "Infra", request.NamespacedName, struct {
		AppsIngress *v1alpha1.AppsIngressStatus `json:"appsIngress"`
	}{status}, appsFieldManager)
	if err != nil {
		return ctrl.Result{}, err
	}
	return result, nil
}

// synced returns when the source of the addresses was last read: now, minus the age of the snapshot. It returns the
// zero time if the source is not read.
func (r *appsReconciler) synced(f *appsFacts) time.Time {
	if f.cluster == nil || f.cluster.Apps == nil {
		return time.Time{}
	}
	if f.source() == v1alpha1.AppsIngressSourceHostedService && !f.cluster.Apps.Followed {
		return time.Time{}
	}
	return f.now.Add(-r.indexes.store.Status().Age())
}

// waitStart returns when waiting for an address began: when the Service was created or, if that is unknown or
// later, when the Infra was first seen without an address.
func (r *appsReconciler) waitStart(key client.ObjectKey, f *appsFacts) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.cluster != nil && f.cluster.Apps != nil && len(f.cluster.Apps.Addresses) > 0 {
		delete(r.waitingSince, key)
		return f.now
	}
	if r.waitingSince[key].IsZero() {
		r.waitingSince[key] = f.now
	}
	if created := f.outcome.created; !created.IsZero() && created.Before(r.waitingSince[key]) {
		return created
	}
	return r.waitingSince[key]
}

func (r *appsReconciler) forget(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waitingSince, key)
	r.metrics.setApps(key, nil)
}

// managesAppsService reports whether control creates the apps Service for an Infra: appsIngress is enabled with
// source HostedService, and the model selected this Infra among those of the hosted cluster.
func managesAppsService(object *v1alpha1.Infra, i *model.Infra) bool {
	apps := object.Spec.AppsIngress
	return object.DeletionTimestamp == nil && apps.IsEnabled() && (apps.Source == "" || apps.Source == v1alpha1.AppsIngressSourceHostedService) &&
		i.Cluster != nil && i.Cluster.Kind == "HostedCluster" && i.Cluster.Apps != nil &&
		i.Cluster.Apps.Infra != nil && *i.Cluster.Apps.Infra == i.Ref
}
