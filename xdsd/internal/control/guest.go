package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// guestConcurrency limits the number of hosted clusters reconciled at a time. Unreachable clusters are not
	// reconciled, because the store detects them.
	guestConcurrency = 32
	// guestTimeout bounds one reconciliation in a hosted cluster.
	guestTimeout = 45 * time.Second
	// checkInterval is the interval of checks of a hosted cluster with a fault, and resyncInterval of one without.
	checkInterval, resyncInterval = 15 * time.Second, 10 * time.Minute
	// announceTimeout is how long a speaker may take to announce a new address before it is a fault.
	announceTimeout = 30 * time.Second
	// firstRetry and lastRetry bound the backoff after failures.
	firstRetry, lastRetry = time.Second, 2 * time.Minute
)

// guestReconciler applies and deletes the objects of Infras in hosted clusters.
type guestReconciler struct {
	client   client.Client // of the management cluster
	live     client.Reader
	indexes  *indexCache
	outcomes *outcomes
	conns    *guestConns
	faults   *Faults
	retry    workqueue.TypedRateLimiter[client.ObjectKey]
	log      *slog.Logger
	// podsEnded receives a value when the last pod of an Infra that does not exist has ended.
	podsEnded chan struct{}
}

func newRetry() workqueue.TypedRateLimiter[client.ObjectKey] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[client.ObjectKey](firstRetry, lastRetry)
}

func (r *guestReconciler) register(m ctrl.Manager) error {
	r.retry, r.podsEnded = newRetry(), make(chan struct{}, 1)
	err := ctrl.NewControllerManagedBy(m).Named("guest").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.withoutInfra)).
		WatchesRawSource(changes(r.indexes, infraFingerprints, itself[*v1alpha1.Infra])).
		WithOptions(controllerOptions(guestConcurrency)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of hosted clusters: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler. A failure in a hosted cluster is recorded as an outcome and retried
// with backoff; only other errors are returned.
func (r *guestReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	key := request.NamespacedName
	x := r.indexes.current()
	if x == nil {
		return ctrl.Result{}, nil // the first snapshot enqueues the object again
	}
	object, exists := r.indexes.store.Infra(key.String())
	i := x.infra(object)
	switch {
	case !exists:
		serves, err := r.podsServe(ctx, key)
		if err != nil || serves {
			return ctrl.Result{}, err // the end of the last pod enqueues the Infra again
		}
		select {
		case r.podsEnded <- struct{}{}:
		default:
		}
		return r.cleanUp(ctx, key)
	case i == nil: // what the Infra needs is unknown
		return ctrl.Result{}, nil
	case !managesAppsService(object, i):
		return r.cleanUp(ctx, key)
	}
	if !r.cleanUpOthers(ctx, key, i.Cluster) {
		return r.retryLater(key), nil
	}
	if !i.Cluster.Apps.Followed { // the model reports the reason as a problem, and its next change enqueues the Infra
		r.outcomes.set(key, outcome{created: r.outcomes.get(key).created})
		return ctrl.Result{}, nil
	}
	return r.ensure(ctx, object, i.Cluster)
}

// withoutInfra returns the Infra of a pod, if that Infra does not exist.
func (r *guestReconciler) withoutInfra(ctx context.Context, pod client.Object) []ctrl.Request {
	requests := byLabel(v1alpha1.LabelInfra)(ctx, pod)
	return slices.DeleteFunc(requests, func(request ctrl.Request) bool {
		_, exists := r.indexes.store.Infra(request.String())
		return exists
	})
}

// podsServe reports whether pods of an Infra run. They serve the VLAN also if the Infra disappeared without teardown, so the
// apps Service has to stay.
func (r *guestReconciler) podsServe(ctx context.Context, infra client.ObjectKey) (bool, error) {
	pods, err := podsOf(ctx, r.client, infra.Namespace, client.MatchingLabels{v1alpha1.LabelInfra: infra.Name})
	return len(pods) > 0, err
}

// ensure applies the objects in the hosted cluster and records the outcome.
func (r *guestReconciler) ensure(ctx context.Context, object *v1alpha1.Infra, cluster *model.Cluster) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(object)
	r.faults.recordLeftovers(key.String(), cluster.Key(), nil) // objects in this cluster are not leftovers
	g, err := r.conns.get(ctx, key, cluster)
	if err != nil {
		return r.recordFault(key, outcome{}, err)
	}
	w := &guest.Wanted{
		Infra: key, Apps: object.Spec.AppsIngress, Service: object.Spec.AppsIngress.ServiceKey(cluster.Name),
	}
	var installing *guest.Fault
	if !w.Apps.LacksClass(cluster.Platform) { // without a class, MetalLB and the cloud controller would both write the Service's status
		installing = g.cluster.EnsureMetalLB(ctx, w)
	}
	service, err := g.cluster.EnsureService(ctx, w) // also while MetalLB is being installed: it assigns an address once it runs
	if err != nil {
		return r.recordFault(key, r.outcomes.get(key), err)
	}
	result := outcome{created: service.CreationTimestamp.Time}
	renewal, err := r.ensureReader(ctx, object, g, w)
	if err != nil {
		return r.recordFault(key, result, err)
	}
	if g.service != w.Service { // the name has changed, or this process has not ensured the Service before
		removed, err := g.cluster.Remove(ctx, func(infra string, o client.Object) bool { return infra == key.String() && !w.Includes(o) })
		r.logRemoved(key, removed)
		if err != nil {
			return r.recordFault(key, result, err)
		}
		g.service = w.Service
	}
	r.retry.Forget(key)
	requeueAfter := min(resyncInterval, max(time.Until(renewal), time.Second))
	result.fault, result.warning, requeueAfter = r.check(ctx, g, w, service, requeueAfter)
	if installing != nil {
		// An unfinished installation explains a missing address; a missing announcement only if the installation
		// failed.
		if result.fault != nil && (g.addressSince.IsZero() || installing.Reason == v1alpha1.AppsIngressInstallFailed) {
			result.fault = installing
		}
		requeueAfter = min(requeueAfter, checkInterval)
	}
	r.outcomes.set(key, result)
	return ctrl.Result{RequeueAfter: wait.Jitter(requeueAfter*9/10, 0.2)}, nil
}

// check returns why the Service has no usable address, or nil, a warning about an address that is usable, or "", and when to
// check again: after resync if there is neither.
func (r *guestReconciler) check(
	ctx context.Context, g *guestConn, w *guest.Wanted, service *corev1.Service, resync time.Duration,
) (fault *guest.Fault, warning string, next time.Duration) {
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		g.addressSince = time.Time{}
		return g.cluster.AddressFault(ctx, w, service), "", checkInterval
	}
	if g.addressSince.IsZero() {
		g.addressSince = time.Now()
	}
	if fault := g.cluster.SelectorFault(ctx, w); fault != nil {
		return fault, "", checkInterval
	}
	fault, warning = g.cluster.AnnouncementFault(ctx, w, service)
	switch {
	case fault == nil && warning == "":
		return nil, "", resync
	case fault != nil && time.Since(g.addressSince) < announceTimeout:
		return nil, "", announceTimeout - time.Since(g.addressSince) + time.Second
	default:
		return fault, warning, checkInterval
	}
}

// recordFault records a guest.Fault as the outcome and retries with backoff. It returns any other error.
func (r *guestReconciler) recordFault(key client.ObjectKey, result outcome, err error) (ctrl.Result, error) {
	if !errors.As(err, &result.fault) {
		return ctrl.Result{}, err
	}
	r.outcomes.set(key, result)
	return r.retryLater(key), nil
}

// retryLater requeues with exponential backoff and jitter.
func (r *guestReconciler) retryLater(key client.ObjectKey) ctrl.Result {
	return ctrl.Result{RequeueAfter: wait.Jitter(r.retry.When(key), 0.2)}
}

func (r *guestReconciler) logRemoved(key client.ObjectKey, removed []string) {
	for _, what := range removed {
		r.log.Info("deleted an object of the Infra from the hosted cluster", "infra", key.String(), "object", what)
	}
}

// cleanUp deletes the objects of an Infra in all hosted clusters, and the reader's Secret.
func (r *guestReconciler) cleanUp(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	if !r.cleanUpOthers(ctx, key, nil) {
		return r.retryLater(key), nil
	}
	r.retry.Forget(key)
	r.outcomes.forget(key)
	return ctrl.Result{}, r.removeReader(ctx, key)
}

// cleanUpOthers deletes the objects of an Infra in all hosted clusters but own, which may be nil. It reports
// whether all are deleted.
func (r *guestReconciler) cleanUpOthers(ctx context.Context, key client.ObjectKey, own *model.Cluster) bool {
	done := true
	for _, g := range r.conns.others(key, own) {
		if !r.exists(g) { // its objects were deleted with it
			r.faults.recordLeftovers(key.String(), g.ref.Key(), nil)
			r.conns.drop(key, g)
			continue
		}
		removed, err := g.cluster.Remove(ctx, func(infra string, _ client.Object) bool { return infra == key.String() })
		r.logRemoved(key, removed)
		r.faults.recordLeftovers(key.String(), g.ref.Key(), err)
		if err != nil {
			r.log.Error("deleting objects of the Infra from the hosted cluster failed; retrying", "infra", key.String(), "hostedcluster", g.ref.Key(), "err", err)
			done = false
			continue
		}
		r.conns.drop(key, g)
	}
	return done
}

// exists reports whether the hosted cluster of a connection still exists.
func (r *guestReconciler) exists(g *guestConn) bool {
	for _, c := range r.indexes.current().Clusters {
		if c.Ref == g.ref && c.UID == g.uid {
			return true
		}
	}
	return false
}
