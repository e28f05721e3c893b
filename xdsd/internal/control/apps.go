package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

const (
	// appsFieldManager is the field manager of Infra.status.appsIngress.
	appsFieldManager = fieldManager + "-apps"
	// hostedConcurrency limits the number of hosted clusters reconciled at a time. Unreachable clusters are not
	// reconciled, because the store detects them.
	hostedConcurrency = 32
	// hostedTimeout bounds one reconciliation in a hosted cluster.
	hostedTimeout = 45 * time.Second
	// checkInterval is the interval of checks of a hosted cluster with a fault, and syncInterval of one without. lastSyncTime is
	// written at syncInterval while no other field changes.
	checkInterval, syncInterval = 15 * time.Second, 5 * time.Minute
	// announceTimeout is how long a speaker may take to announce a new address before it is a fault.
	announceTimeout = 30 * time.Second
	// firstRetry and lastRetry bound the backoff after failures in a hosted cluster.
	firstRetry, lastRetry = time.Second, 2 * time.Minute
)

// appsReconciler maintains the apps ingress of Infras: the objects in the hosted cluster, the reader's Secret and
// status.appsIngress.
type appsReconciler struct {
	client   client.Client // of the management cluster
	live     client.Reader
	indexes  *indexCache
	statuses *statusWriter
	metrics  *statusMetrics
	faults   *Faults
	hosted   *hostedClusters
	retry    workqueue.TypedRateLimiter[client.ObjectKey]
	log      *slog.Logger

	mu     sync.Mutex
	states map[client.ObjectKey]*appsState
}

// appsState is what control remembers of an Infra. It is not safe for concurrent use; a controller reconciles an Infra once at a time.
type appsState struct {
	// waitingSince is when the Infra was first seen without an address, or when its Service was created, if that is earlier.
	// addressSince is when the Service was first seen with an address.
	waitingSince, addressSince time.Time
	// service is the Service ensured last; zero if unknown.
	service types.NamespacedName
	// clusters are the hosted clusters in which the Infra may have objects.
	clusters map[hostedID]*hostedCluster
}

func newRetry() workqueue.TypedRateLimiter[client.ObjectKey] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[client.ObjectKey](firstRetry, lastRetry)
}

func (r *appsReconciler) register(m ctrl.Manager) error {
	r.retry, r.states = newRetry(), map[client.ObjectKey]*appsState{}
	err := ctrl.NewControllerManagedBy(m).Named("apps").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.withoutInfra)).
		WatchesRawSource(changes(r.indexes, infraFingerprints, itself[*v1alpha1.Infra])).
		WithOptions(controllerOptions(hostedConcurrency)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of the apps ingress: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler. A failure in a hosted cluster is reported in the status and retried with backoff; only
// other errors are returned.
func (r *appsReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, hostedTimeout+reconcileTimeout)
	defer cancel()
	key := request.NamespacedName
	x := r.indexes.current()
	if x == nil {
		return ctrl.Result{}, nil // the first snapshot enqueues the object again
	}
	object, exists := r.indexes.store.Infra(key.String())
	i := x.infra(object)
	if exists && i == nil { // what the Infra needs is unknown
		return ctrl.Result{}, nil
	}
	if !exists { // its pods serve the VLAN also if the Infra disappeared without teardown, so the apps Service stays
		serves, err := r.podsServe(ctx, key)
		if err != nil || serves {
			return ctrl.Result{}, err // the end of the last pod enqueues the Infra again
		}
	}
	state := r.state(key)
	var own *model.Cluster // in which the Infra needs objects; nil for none
	if exists && managesAppsService(object, i) {
		own = i.Cluster
	}
	if exists && object.Status.AppsIngress == nil { // the first status does not wait for the hosted cluster
		if _, err := r.writeStatus(ctx, key, state, outcome{}); err != nil {
			return ctrl.Result{}, err
		}
	}
	result, err := r.reconcileHosted(ctx, key, object, own, state)
	next, statusErr := r.writeStatus(ctx, key, state, result)
	if err := errors.Join(err, statusErr); err != nil {
		return ctrl.Result{}, err
	}
	if !exists && result.next == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.states, key)
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

func (r *appsReconciler) state(key client.ObjectKey) *appsState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.states[key] == nil {
		r.states[key] = &appsState{clusters: map[hostedID]*hostedCluster{}}
	}
	return r.states[key]
}

// withoutInfra returns the Infra of a pod, if that Infra does not exist.
func (r *appsReconciler) withoutInfra(ctx context.Context, pod client.Object) []ctrl.Request {
	requests := byLabel(v1alpha1.LabelInfra)(ctx, pod)
	return slices.DeleteFunc(requests, func(request ctrl.Request) bool {
		_, exists := r.indexes.store.Infra(request.String())
		return exists
	})
}

// podsServe reports whether pods of an Infra run. They serve the VLAN also if the Infra disappeared without teardown, so the
// apps Service has to stay.
func (r *appsReconciler) podsServe(ctx context.Context, infra client.ObjectKey) (bool, error) {
	pods, err := podsOf(ctx, r.client, infra.Namespace, client.MatchingLabels{v1alpha1.LabelInfra: infra.Name})
	return len(pods) > 0, err
}

// reconcileHosted applies the objects of an Infra in its hosted cluster own, which may be nil, and deletes them in all others. Errors
// of the management cluster are returned.
func (r *appsReconciler) reconcileHosted(
	ctx context.Context, key client.ObjectKey, object *v1alpha1.Infra, own *model.Cluster, state *appsState,
) (result outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, hostedTimeout)
	defer cancel()
	done := r.cleanUpOthers(ctx, key, state, own)
	switch {
	case own == nil && done:
		err = r.removeReader(ctx, key)
	case own != nil && own.Apps.Followed: // otherwise the model reports the reason as a problem, and its next change enqueues the Infra
		result, err = r.ensure(ctx, object, own, state)
	}
	if errors.As(err, &result.fault) {
		done, err = false, nil
	}
	if done {
		r.retry.Forget(key)
	} else {
		result.next = r.retry.When(key)
	}
	result.next = wait.Jitter(result.next, 0.1)
	return result, err
}

// ensure applies the objects in a hosted cluster that responds. The error is a *guest.Fault if that failed.
func (r *appsReconciler) ensure(ctx context.Context, object *v1alpha1.Infra, cluster *model.Cluster, state *appsState) (result outcome, err error) {
	key := client.ObjectKeyFromObject(object)
	r.faults.recordLeftovers(key.String(), cluster.Key(), nil) // objects in this cluster are not leftovers
	h, err := r.hosted.get(ctx, idOf(cluster), cluster.Apps.Hosted)
	if err != nil {
		return result, err
	}
	state.clusters[idOf(cluster)] = h
	w := &guest.Wanted{Infra: key, Apps: object.Spec.AppsIngress, Service: object.Spec.AppsIngress.ServiceKey(cluster.Name)}
	var installing *guest.Fault
	if !w.Apps.LacksClass(cluster.Platform) { // without a class, MetalLB and the cloud controller would both write the Service's status
		installing = h.EnsureMetalLB(ctx, w)
	}
	service, err := h.EnsureService(ctx, w) // also while MetalLB is being installed: it assigns an address once it runs
	if err != nil {
		return result, err
	}
	result = check(ctx, h, w, service, state)
	if installing != nil {
		// An unfinished installation explains a missing address; a missing announcement only if the installation failed.
		if result.fault != nil && (state.addressSince.IsZero() || installing.Reason != v1alpha1.AppsIngressMetalLBMissing) {
			result.fault = installing
		}
		result.next = checkInterval
	}
	renewal, err := r.ensureReader(ctx, object, h, w)
	if err != nil {
		return result, err
	}
	result.next = min(result.next, max(time.Until(renewal), time.Second))
	if state.service != w.Service { // the name has changed, or this process has not ensured the Service before
		removed, err := h.Remove(ctx, func(infra string, o client.Object) bool { return infra == key.String() && !w.Includes(o) })
		r.logRemoved(key, removed)
		if err != nil {
			return result, err
		}
		state.service = w.Service
	}
	return result, nil
}

// check returns why the Service has no usable address, and when to check again.
func check(ctx context.Context, h *hostedCluster, w *guest.Wanted, service *corev1.Service, state *appsState) outcome {
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		state.addressSince = time.Time{}
		if created := service.CreationTimestamp.Time; created.Before(state.waitingSince) { // by an earlier process
			state.waitingSince = created
		}
		return outcome{fault: h.AddressFault(ctx, w, service), next: checkInterval}
	}
	if state.addressSince.IsZero() {
		state.addressSince = time.Now()
	}
	if fault := h.SelectorFault(ctx, w); fault != nil {
		return outcome{fault: fault, next: checkInterval}
	}
	fault, warning := h.AnnouncementFault(ctx, w, service)
	switch {
	case fault == nil && warning == "":
		return outcome{next: syncInterval}
	case fault != nil && time.Since(state.addressSince) < announceTimeout:
		return outcome{next: announceTimeout - time.Since(state.addressSince) + time.Second}
	default:
		return outcome{fault: fault, warning: warning, next: checkInterval}
	}
}

func (r *appsReconciler) logRemoved(key client.ObjectKey, removed []string) {
	for _, what := range removed {
		r.log.Info("deleted an object of the Infra from the hosted cluster", "infra", key.String(), "object", what)
	}
}

// cleanUpOthers deletes the objects of an Infra in all hosted clusters but own, which may be nil. It reports
// whether all are deleted.
func (r *appsReconciler) cleanUpOthers(ctx context.Context, key client.ObjectKey, state *appsState, own *model.Cluster) bool {
	done := true
	for id, h := range state.clusters {
		if own != nil && id == idOf(own) {
			continue
		}
		var err error
		if r.exists(id) { // otherwise its objects were deleted with it
			var removed []string
			removed, err = h.Remove(ctx, func(infra string, _ client.Object) bool { return infra == key.String() })
			r.logRemoved(key, removed)
		}
		r.faults.recordLeftovers(key.String(), id.Key(), err)
		if err != nil {
			r.log.Error("deleting objects of the Infra from the hosted cluster failed; retrying", "infra", key.String(), "hostedcluster", id.Key(), "err", err)
			done = false
			continue
		}
		delete(state.clusters, id)
		state.service = types.NamespacedName{}
		r.hosted.drop(id)
	}
	return done
}

// exists reports whether a hosted cluster still exists.
func (r *appsReconciler) exists(id hostedID) bool {
	return slices.ContainsFunc(r.indexes.current().Clusters, func(c *model.Cluster) bool { return idOf(c) == id })
}

// managesAppsService reports whether control creates the apps Service for an Infra: appsIngress is enabled with
// source HostedService, and the model selected this Infra among those of the hosted cluster.
func managesAppsService(object *v1alpha1.Infra, i *model.Infra) bool {
	apps := object.Spec.AppsIngress
	return object.DeletionTimestamp == nil && apps.IsEnabled() && (apps.Source == "" || apps.Source == v1alpha1.AppsIngressSourceHostedService) &&
		i.Cluster != nil && i.Cluster.Kind == "HostedCluster" && i.Cluster.Apps != nil &&
		i.Cluster.Apps.Infra != nil && *i.Cluster.Apps.Infra == i.Ref
}

// writeStatus writes status.appsIngress of an Infra if it has changed, and returns when to reconcile the Infra again; 0 for never.
func (r *appsReconciler) writeStatus(ctx context.Context, key client.ObjectKey, state *appsState, result outcome) (next time.Duration, err error) {
	object, _ := r.indexes.store.Infra(key.String())
	if object == nil || !object.Spec.AppsIngress.IsEnabled() {
		state.waitingSince = time.Time{}
		r.metrics.setApps(key, nil)
		if object == nil || object.Status.AppsIngress == nil {
			return result.next, nil
		}
		return result.next, r.statuses.write(ctx, "Infra", key, struct{}{}, appsFieldManager)
	}
	x := r.indexes.current() // it may have changed meanwhile
	i := x.infra(object)
	if i == nil {
		return result.next, nil
	}
	f := &appsFacts{object: object, problems: x.problemsOf(i), outcome: result, now: time.Now()}
	if i.Cluster != nil && i.Cluster.Kind == "HostedCluster" {
		f.cluster = i.Cluster
	}
	switch {
	case f.cluster != nil && f.cluster.Apps != nil && len(f.cluster.Apps.Addresses) > 0:
		state.waitingSince = time.Time{}
	case state.waitingSince.IsZero():
		state.waitingSince = f.now
	}
	f.waitingSince, f.synced = state.waitingSince, r.synced(f)
	status, changes := appsStatus(f)
	r.metrics.setApps(key, status)
	next = wait.Jitter(syncInterval, 0.1)
	if result.next > 0 {
		next = min(next, result.next)
	}
	if !changes.IsZero() {
		next = min(next, max(changes.Sub(f.now), time.Millisecond))
	}
	if before := object.Status.AppsIngress; before != nil && equality.Semantic.DeepEqual(before, status) {
		return next, nil
	}
	return next, r.statuses.write(ctx, "Infra", key, struct {
		AppsIngress *v1alpha1.AppsIngressStatus `json:"appsIngress"`
	}{status}, appsFieldManager)
}

// synced returns when the source of the addresses was last read: now, minus the age of the snapshot. It returns the
// zero time if the source is not read.
func (r *appsReconciler) synced(f *appsFacts) time.Time {
	if f.cluster == nil || f.cluster.Apps == nil || f.source() == v1alpha1.AppsIngressSourceHostedService && !f.cluster.Apps.Followed {
		return time.Time{}
	}
	return f.now.Add(-r.indexes.store.Status().Age())
}
