package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

const (
	// guestsAtOnce is how many hosted clusters are spoken to at once. One that does not
	// answer is not spoken to: the store knows of it.
	guestsAtOnce = 32
	// guestTimeout bounds what is done in one hosted cluster at a time.
	guestTimeout = 45 * time.Second
	// lookEvery is how often a cluster without an address is asked why, and lookSeldom how
	// often one is gone over in which all is well.
	lookEvery, lookSeldom = 15 * time.Second, 10 * time.Minute
	// announceWithin is how long a speaker may take to say that it announces an address.
	announceWithin = 30 * time.Second
	// firstRetry and lastRetry bound the wait after something went wrong.
	firstRetry, lastRetry = time.Second, 2 * time.Minute
)

// guestReconciler makes hosted clusters as Infras want them.
type guestReconciler struct {
	client   client.Client // of the management cluster
	live     client.Reader
	known    *knowledge
	outcomes *outcomes
	guests   *guests
	remains  *Remains
	retry    workqueue.TypedRateLimiter[client.ObjectKey]
	log      *slog.Logger
}

func newRetry() workqueue.TypedRateLimiter[client.ObjectKey] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[client.ObjectKey](firstRetry, lastRetry)
}

func (r *guestReconciler) register(m ctrl.Manager) error {
	r.retry = newRetry()
	err := ctrl.NewControllerManagedBy(m).Named("guest").
		For(&v1alpha1.Infra{}).
		WatchesRawSource(changesOf(r.known, infraMeanings)).
		WithOptions(controller.Options{MaxConcurrentReconciles: guestsAtOnce}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of hosted clusters: %w", err)
	}
	return nil
}

// Reconcile is reconcile.Reconciler's. What goes wrong in a hosted cluster is an outcome
// and tried again, later and later; it is no error of ours.
func (r *guestReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	key := request.NamespacedName
	object := &v1alpha1.Infra{}
	err := r.client.Get(ctx, key, object)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading Infra %s: %w", key, err)
	}
	x := r.known.now()
	if x == nil {
		return ctrl.Result{}, nil // what changes that comes here again
	}
	i := x.infras[key.String()]
	if err != nil || !wantsHosted(object, i) {
		return r.leave(ctx, key)
	}
	if !r.leaveOthers(ctx, key, i.Cluster) {
		return r.later(key), nil
	}
	if !i.Cluster.Apps.Followed { // the store says why, and when that changes
		r.outcomes.set(key, outcome{created: r.outcomes.get(key).created})
		return ctrl.Result{}, nil
	}
	return r.ensure(ctx, object, i.Cluster)
}

// ensure makes the hosted cluster as it is to be, and takes down what came of it.
func (r *guestReconciler) ensure(ctx context.Context, object *v1alpha1.Infra, cluster *model.Cluster) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(object)
	r.remains.note(key.String(), cluster.Key(), nil) // it is wanted again
	g, err := r.guests.of(ctx, key, cluster)
	if err != nil {
		return r.failed(key, outcome{}, err)
	}
	w := &guest.Wanted{
		Infra: key, Apps: object.Spec.AppsIngress, Service: object.Spec.AppsIngress.ServiceKey(cluster.Name),
	}
	var installing *guest.Fault
	if !w.Apps.LacksClass(cluster.Platform) { // else MetalLB would be what conflicts
		installing = g.cluster.EnsureMetalLB(ctx, w)
	}
	service, err := g.cluster.EnsureService(ctx, w) // meanwhile, and MetalLB finds it
	if err != nil {
		return r.failed(key, r.outcomes.get(key), err)
	}
	now := outcome{created: service.CreationTimestamp.Time}
	due, err := r.ensureReader(ctx, object, g, w)
	if err != nil {
		return r.failed(key, now, err)
	}
	if g.service != w.Service { // another name than before, or nobody knows
		removed, err := g.cluster.Remove(ctx, func(infra string, o client.Object) bool { return infra == key.String() && !w.Kept(o) })
		r.tell(key, removed)
		if err != nil {
			return r.failed(key, now, err)
		}
		g.service = w.Service
	}
	r.retry.Forget(key)
	again := min(lookSeldom, max(time.Until(due), time.Second))
	now.fault, again = r.look(ctx, g, w, service, again)
	if installing != nil {
		// The cause of there being no address; of nobody announcing it only where it failed.
		if now.fault != nil && (g.addressed.IsZero() || installing.Reason == v1alpha1.AppsIngressInstallFailed) {
			now.fault = installing
		}
		again = min(again, lookEvery)
	}
	r.outcomes.set(key, now)
	return ctrl.Result{RequeueAfter: wait.Jitter(again*9/10, 0.2)}, nil
}

// look finds out why there is no address, or why nobody hears of it.
func (r *guestReconciler) look(ctx context.Context, g *guestOf, w *guest.Wanted, service *corev1.Service, otherwise time.Duration) (*guest.Fault, time.Duration) {
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		g.addressed = time.Time{}
		return g.cluster.Unassigned(ctx, w, service), lookEvery
	}
	if g.addressed.IsZero() {
		g.addressed = time.Now()
	}
	if fault := g.cluster.Unselected(ctx, w); fault != nil {
		return fault, lookEvery
	}
	fault := g.cluster.Unannounced(ctx, w)
	switch {
	case fault == nil:
		return nil, otherwise
	case time.Since(g.addressed) < announceWithin:
		return nil, announceWithin - time.Since(g.addressed) + time.Second
	default:
		return fault, lookEvery
	}
}

// failed takes down a fault, and tries again later.
func (r *guestReconciler) failed(key client.ObjectKey, now outcome, err error) (ctrl.Result, error) {
	if !errors.As(err, &now.fault) {
		return ctrl.Result{}, err
	}
	r.outcomes.set(key, now)
	return r.later(key), nil
}

// later is after a wait that grows each time, and is never quite the same for two.
func (r *guestReconciler) later(key client.ObjectKey) ctrl.Result {
	return ctrl.Result{RequeueAfter: wait.Jitter(r.retry.When(key), 0.2)}
}

func (r *guestReconciler) tell(key client.ObjectKey, removed []string) {
	for _, what := range removed {
		r.log.Info("removed from the hosted cluster", "infra", key.String(), "object", what)
	}
}

// leave takes away what an Infra has in any hosted cluster.
func (r *guestReconciler) leave(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	if !r.leaveOthers(ctx, key, nil) {
		return r.later(key), nil
	}
	r.retry.Forget(key)
	r.outcomes.forget(key)
	return ctrl.Result{}, r.removeReader(ctx, key)
}

// leaveOthers takes away what an Infra has in hosted clusters other than the one that is
// its own, and reports whether that is done.
func (r *guestReconciler) leaveOthers(ctx context.Context, key client.ObjectKey, own *model.Cluster) bool {
	done := true
	for _, g := range r.guests.others(key, own) {
		if !r.exists(g) { // and what was in it is gone with it
			r.remains.note(key.String(), g.of.Key(), nil)
			r.guests.drop(key, g)
			continue
		}
		removed, err := g.cluster.Remove(ctx, func(infra string, _ client.Object) bool { return infra == key.String() })
		r.tell(key, removed)
		r.remains.note(key.String(), g.of.Key(), err)
		if err != nil {
			r.log.Error("objects of the Infra remain in the hosted cluster", "infra", key.String(), "hostedcluster", g.of.Key(), "err", err)
			done = false
			continue
		}
		r.guests.drop(key, g)
	}
	return done
}

// exists reports whether a hosted cluster is still there.
func (r *guestReconciler) exists(g *guestOf) bool {
	for _, c := range r.known.now().Clusters {
		if c.Ref == g.of && c.UID == g.uid {
			return true
		}
	}
	return false
}
