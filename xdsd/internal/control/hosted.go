package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

const (
	// hostedConcurrency limits the number of hosted clusters reconciled at a time. Unreachable clusters with an apps ingress are not
	// reconciled, because the store detects them.
	hostedConcurrency = 32
	// hostedTimeout bounds one reconciliation of a hosted cluster.
	hostedTimeout = 45 * time.Second
	// checkInterval is the interval of checks of a hosted cluster with a fault, and syncInterval of one without. lastSyncTime is
	// written at syncInterval while no other field changes.
	checkInterval, syncInterval = 15 * time.Second, 5 * time.Minute
	// announceTimeout is how long a speaker may take to announce a new address before it is a fault.
	announceTimeout = 30 * time.Second
	// firstRetry and lastRetry bound the backoff after failures in a hosted cluster.
	firstRetry, lastRetry = time.Second, 2 * time.Minute
)

// hostedReconciler maintains the objects of Infras in hosted clusters. It applies the objects of the Infra that
// configures a cluster's apps ingress, and deletes objects that no Infra needs. It also deletes them when this
// replica first sees the cluster: without a finalizer, an Infra can be deleted while no replica runs.
type hostedReconciler struct {
	reconciler

	// changed receives the Infras whose outcome has changed.
	changed chan event.GenericEvent
	// serving are the hosted clusters with objects of deleted Infras whose pods still serve, by Infra.
	serving sync.Map

	states states[hostedCluster]
	retry  workqueue.TypedRateLimiter[string] // by hosted cluster
}

// hostedCluster is control's state for a hosted cluster.
type hostedCluster struct {
	// access is how the Service was last accessed; nil if unknown.
	access *model.HostedAccess
	// sweptInfra is the Infra that configured the apps ingress when the objects of all others were deleted, and sweptService its
	// Service when all others of it were; zero if unknown.
	sweptInfra, sweptService types.NamespacedName
	// readers are Infras whose objects were deleted, and whose Secrets with readers' kubeconfigs must be deleted.
	readers map[client.ObjectKey]bool
	// addressSince is when the Service was first seen with an address.
	addressSince time.Time
	// last is the last outcome; nil before the first one. Other controllers read it.
	last atomic.Pointer[outcome]
}

func (r *hostedReconciler) register(m ctrl.Manager) error {
	r.retry = workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)
	err := ctrl.NewControllerManagedBy(m).Named("hosted").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofServing)).
		WatchesRawSource(changes(r.store, hostedFingerprints, func(objects.Object) string { return "" })).
		WithOptions(controllerOptions(hostedConcurrency)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of hosted clusters: %w", err)
	}
	return nil
}

// hostedFingerprints returns the hosted clusters to which control can connect, with what their objects depend on.
func hostedFingerprints(s *model.Snapshot) map[string]any {
	infras, all := map[model.Ref]*model.Infra{}, map[string]any{}
	for _, i := range s.Infras {
		infras[i.Ref] = i
	}
	for _, c := range s.Clusters {
		switch {
		case c.Kind != "HostedCluster":
		case c.Apps != nil && c.Apps.Infra != nil && c.Apps.Hosted != nil:
			i := infras[*c.Apps.Infra]
			all[c.Key()] = [3]any{c, i.UID, i.Generation}
		case c.Kubeconfig != "" && c.APIServer != "":
			all[c.Key()] = [3]any{c.UID, c.Kubeconfig, c.APIServer}
		}
	}
	return all
}

// ofServing returns the hosted cluster that the end of a pod may concern.
func (r *hostedReconciler) ofServing(ctx context.Context, pod client.Object) []ctrl.Request {
	for _, infra := range byLabel(v1alpha1.LabelInfra)(ctx, pod) {
		if cluster, ok := r.serving.Load(infra.NamespacedName); ok {
			return []ctrl.Request{requestOf(fmt.Sprint(cluster))}
		}
	}
	return nil
}

// managesAppsService reports whether control creates the apps Service for an Infra: appsIngress is enabled with
// source HostedService, and the model selected this Infra for the hosted cluster.
func managesAppsService(object *v1alpha1.Infra, i *model.Infra) bool {
	apps := object.Spec.AppsIngress
	return object.DeletionTimestamp == nil && apps.IsEnabled() && (apps.Source == "" || apps.Source == v1alpha1.AppsIngressSourceHostedService) &&
		i.Cluster != nil && i.Cluster.Kind == "HostedCluster" && i.Cluster.Apps != nil &&
		i.Cluster.Apps.Infra != nil && *i.Cluster.Apps.Infra == i.Ref
}

// Reconcile implements reconcile.Reconciler. A failure in a hosted cluster is reported and retried with backoff; only errors of the
// management cluster are returned.
func (r *hostedReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, hostedTimeout)
	defer cancel()
	if !r.store.Status().Synced {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	s, key := r.store.Snapshot(), request.String()
	at := slices.IndexFunc(s.Clusters, func(c *model.Cluster) bool { return c.Kind == "HostedCluster" && c.Key() == key })
	if at < 0 { // the objects were deleted with the cluster, but the reader's Secret is in the Infra's namespace
		if last := r.states.get(key).last.Load(); last != nil {
			if err := r.removeUnusedReader(ctx, last.infra); err != nil {
				return ctrl.Result{}, err
			}
		}
		r.states.forget(key)
		r.problems.recordLeftovers(key, nil)
		return ctrl.Result{}, nil
	}
	c := s.Clusters[at]
	object, known := r.manager(s, c)
	if !known {
		return ctrl.Result{}, nil
	}
	state := r.states.get(key)
	if object == nil {
		if err := r.sweep(ctx, nil, c, state); err != nil {
			return ctrl.Result{RequeueAfter: r.backoff(key)}, nil
		}
		r.states.forget(key)
		r.retry.Forget(key)
		return ctrl.Result{}, nil
	}
	infra := client.ObjectKeyFromObject(object)
	if !c.Apps.Followed { // the model reports the reason as a problem, and its next change enqueues the cluster
		r.setOutcome(ctx, state, outcome{infra: infra})
		return ctrl.Result{}, nil
	}
	w := &guest.Wanted{Infra: infra, Apps: object.Spec.AppsIngress, Service: object.Spec.AppsIngress.ServiceKey(c.Name)}
	if state.sweptInfra != infra && r.sweep(ctx, &guest.Wanted{Infra: infra}, c, state) == nil {
		state.sweptInfra, state.sweptService = infra, types.NamespacedName{}
	}
	result, next, err := r.ensure(ctx, w, c, state)
	isFault := errors.As(err, &result.fault)
	result.infra = infra
	r.setOutcome(ctx, state, result)
	if err != nil && !isFault {
		return ctrl.Result{}, err
	}
	if err == nil && state.sweptService != w.Service && r.sweep(ctx, w, c, state) == nil {
		state.sweptService = w.Service
	}
	if err != nil || state.sweptInfra != infra || state.sweptService != w.Service {
		next = r.backoff(key)
	} else {
		r.retry.Forget(key)
		next = wait.Jitter(next, 0.1)
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// backoff returns when to retry after a failure in a hosted cluster.
func (r *hostedReconciler) backoff(cluster string) time.Duration {
	return wait.Jitter(r.retry.When(cluster), 0.1)
}

// manager returns the Infra whose apps Service a cluster requires; nil for none. known is false if the snapshot was built from another
// version of the Infra: the next snapshot then enqueues the cluster again.
func (r *hostedReconciler) manager(s *model.Snapshot, c *model.Cluster) (object *v1alpha1.Infra, known bool) {
	if c.Apps == nil || c.Apps.Infra == nil {
		return nil, true
	}
	object, _ = r.store.Infra(c.Apps.Infra.Key())
	i := modelOf(s, object)
	if i == nil || !managesAppsService(object, i) {
		return nil, i != nil
	}
	return object, true
}

// ensure applies the objects of an Infra in a hosted cluster that responds, and returns when to check them again. The error is a
// *guest.Fault if that failed.
func (r *hostedReconciler) ensure(
	ctx context.Context, w *guest.Wanted, c *model.Cluster, state *hostedCluster,
) (result outcome, next time.Duration, err error) {
	h, err := r.connect(ctx, c, state)
	if err != nil {
		return result, 0, err
	}
	defer h.Close()
	var installing *guest.Fault
	if !w.Apps.LacksClass(c.Platform) { // without a class, MetalLB and the cloud controller would both write the Service's status
		installing = h.EnsureMetalLB(ctx, w)
	}
	service, err := h.EnsureService(ctx, w) // also while MetalLB is being installed: it assigns an address once it runs
	if err != nil {
		return result, 0, err
	}
	result, next = check(ctx, h, w, service, state)
	if installing != nil {
		// An unfinished installation explains a missing address; a missing announcement only if the installation failed.
		if result.fault != nil && (state.addressSince.IsZero() || installing.Reason != v1alpha1.AppsIngressMetalLBMissing) {
			result.fault = installing
		}
		next = checkInterval
	}
	renewal, err := r.ensureReader(ctx, h, w)
	return result, min(next, max(time.Until(renewal), time.Second)), err
}

// check returns why the Service lacks a usable address, and when to check again.
func check(
	ctx context.Context, h *guest.Cluster, w *guest.Wanted, service *corev1.Service, state *hostedCluster,
) (result outcome, next time.Duration) {
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		state.addressSince = time.Time{}
		return outcome{fault: h.AddressFault(ctx, w, service)}, checkInterval
	}
	if state.addressSince.IsZero() {
		state.addressSince = time.Now()
	}
	if fault := h.SelectorFault(ctx, w); fault != nil {
		return outcome{fault: fault}, checkInterval
	}
	fault, warning := h.AnnouncementFault(ctx, w, service)
	switch {
	case fault == nil && warning == "":
		return outcome{}, syncInterval
	case fault != nil && time.Since(state.addressSince) < announceTimeout:
		return outcome{}, announceTimeout - time.Since(state.addressSince) + time.Second
	default:
		return outcome{fault: fault, warning: warning}, checkInterval
	}
}

// sweep deletes the objects in a hosted cluster that no Infra needs, and records whether that failed. w is what the cluster requires: nil
// for nothing, and without a Service for everything of its Infra.
func (r *hostedReconciler) sweep(ctx context.Context, w *guest.Wanted, c *model.Cluster, state *hostedCluster) error {
	err := r.removeUnneeded(ctx, w, c, state)
	if err != nil {
		r.log.Error("deleting the objects that no Infra needs failed; retrying", "hostedcluster", c.Key(), "err", err)
	}
	r.problems.recordLeftovers(c.Key(), err)
	return err
}

func (r *hostedReconciler) removeUnneeded(ctx context.Context, w *guest.Wanted, c *model.Cluster, state *hostedCluster) error {
	h, err := r.connect(ctx, c, state)
	var fault *guest.Fault
	switch {
	case errors.As(err, &fault) && fault.Reason == v1alpha1.AppsIngressKubeconfigMissing: // expected if control lacks permission to the Secret
		r.log.Debug("cannot read the kubeconfig of a hosted cluster; not checking it for objects that no Infra needs", "hostedcluster", c.Key(), "err", err)
		return nil
	case err != nil:
		return err
	}
	defer h.Close()
	if state.readers == nil {
		state.readers = map[client.ObjectKey]bool{}
	}
	if last := state.last.Load(); last != nil {
		state.readers[last.infra] = true
	}
	var serving error // deleted Infras whose pods still serve
	removed, err := h.Remove(ctx, func(infra string, o client.Object) bool {
		if w != nil && infra == w.Infra.String() {
			return w.Service.Name != "" && !w.Includes(o)
		}
		needed, err := r.needsObjects(ctx, infra, c)
		serving = errors.Join(serving, err)
		if err != nil || needed {
			return false
		}
		state.readers[requestOf(infra).NamespacedName] = true
		return true
	})
	for _, what := range removed {
		r.log.Info("deleted an object that no Infra needs", "hostedcluster", c.Key(), "object", what)
	}
	if err := errors.Join(err, serving); err != nil {
		return err
	}
	for infra := range state.readers { // last: setup waits for it
		if err := r.removeUnusedReader(ctx, infra); err != nil {
			return err
		}
		delete(state.readers, infra)
	}
	return nil
}

// removeUnusedReader deletes the Secret with the reader's kubeconfig of an Infra that no longer manages an apps Service.
func (r *hostedReconciler) removeUnusedReader(ctx context.Context, infra client.ObjectKey) error {
	object, exists := r.store.Infra(infra.String())
	i := modelOf(r.store.Snapshot(), object)
	if exists && (i == nil || managesAppsService(object, i)) {
		return nil
	}
	return r.removeReader(ctx, infra)
}

// needsObjects reports whether an Infra, as "namespace/name", needs its objects in a cluster. If that is unknown, it reports true. It
// returns an error if the Infra does not exist and its pods serve.
func (r *hostedReconciler) needsObjects(ctx context.Context, infra string, c *model.Cluster) (bool, error) {
	object, exists := r.store.Infra(infra)
	key := requestOf(infra).NamespacedName
	r.serving.Delete(key)
	if exists {
		i := modelOf(r.store.Snapshot(), object)
		return i == nil || managesAppsService(object, i) && i.Cluster.Ref == c.Ref, nil
	}
	serves, err := podsServe(ctx, r.client, key)
	if !serves {
		return false, err
	}
	r.serving.Store(key, c.Key())
	//nolint:staticcheck // a kind begins with a capital
	return true, fmt.Errorf("Infra %s does not exist, but its pods are still running; create the Infra again, or run 'kubectl oooi teardown'", infra)
}

// podsServe reports whether pods of an Infra run. They serve the VLAN also if the Infra disappeared without teardown, so the
// apps Service has to stay.
func podsServe(ctx context.Context, c client.Reader, infra client.ObjectKey) (bool, error) {
	pods, err := podsOf(ctx, c, infra.Namespace, client.MatchingLabels{v1alpha1.LabelInfra: infra.Name})
	return len(pods) > 0, err
}

// setOutcome records the result for an Infra, which is enqueued if the result has changed.
func (r *hostedReconciler) setOutcome(ctx context.Context, state *hostedCluster, result outcome) {
	if before := state.last.Swap(&result); before != nil && reflect.DeepEqual(*before, result) {
		return
	}
	select {
	case r.changed <- event.GenericEvent{Object: &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: result.infra.Namespace, Name: result.infra.Name}}}:
	case <-ctx.Done():
	}
}

// outcomeOf returns the last result for an Infra in its hosted cluster.
func (r *hostedReconciler) outcomeOf(infra client.ObjectKey, c *model.Cluster) outcome {
	if last := r.states.get(c.Key()).last.Load(); last != nil && last.infra == infra {
		return *last
	}
	return outcome{}
}

// connect returns a client of a hosted cluster. A cluster without an apps ingress is accessed as it was with one, if it had one.
func (r *hostedReconciler) connect(ctx context.Context, c *model.Cluster, state *hostedCluster) (*guest.Cluster, error) {
	if c.Apps != nil && c.Apps.Hosted != nil {
		state.access = c.Apps.Hosted
	}
	access := cmp.Or(state.access, &model.HostedAccess{Secret: c.Kubeconfig, Key: v1alpha1.DefaultKubeconfigKey, Dial: c.APIServer})
	missing := func(format string, args ...any) error {
		return &guest.Fault{Reason: v1alpha1.AppsIngressKubeconfigMissing, Message: fmt.Sprintf(format, args...)}
	}
	namespace, name, ok := strings.Cut(access.Secret, "/")
	if !ok {
		return nil, missing("HyperShift has not published the kubeconfig of the hosted cluster yet")
	}
	secret := &corev1.Secret{}
	switch err := r.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, missing("reading Secret %s: %v", access.Secret, err)
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", access.Secret, err)
	}
	data := secret.Data[access.Key]
	if len(data) == 0 {
		return nil, missing("Secret %s lacks key %q", access.Secret, access.Key)
	}
	h, err := guest.Connect(data, access.Dial)
	if err != nil {
		return nil, &guest.Fault{Reason: v1alpha1.AppsIngressKubeconfigRejected, Message: fmt.Sprintf("Secret %s: %v", access.Secret, err)}
	}
	return h, nil
}
