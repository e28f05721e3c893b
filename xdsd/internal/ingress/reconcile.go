package ingress

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/xdsd/internal/report"
)

// staleRetry is the wait before another attempt if the cache is behind. An event normally causes an earlier one.
const staleRetry = time.Second

// reconciler reconciles VirtualIngresses.
type reconciler struct {
	client   client.Client
	policy   Policy
	writer   *writer
	kinds    *outputKinds
	recorder events.EventRecorder
	// written has the VirtualIngresses with the status that was written last, by their key. The cache may be behind.
	written sync.Map
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	v := &v1alpha1.VirtualIngress{}
	if err := r.client.Get(ctx, request.NamespacedName, v); err != nil {
		r.written.Delete(request.NamespacedName)
		r.writer.guard.forget(request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if v.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // the garbage collector deletes the generated objects
	}
	cached := v.Status
	if last, ok := r.written.Load(request.NamespacedName); ok {
		if last, ok := last.(*v1alpha1.VirtualIngress); ok && last.UID == v.UID {
			last.Status.DeepCopyInto(&v.Status)
		}
	}
	resolved, err := resolve(ctx, r.client, v, r.policy)
	if err != nil {
		return ctrl.Result{}, err
	}
	w := &reconciliation{reconciler: r, resolution: resolved, v: v, parts: partsOf(v, r.policy), wanted: map[string]bool{}}
	failed, err := faultOf(w.run(ctx))
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case err != nil: // not caused by the VirtualIngress: retry, and keep the status
		return ctrl.Result{}, err
	}
	status, err := w.status(failed)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.writeStatus(ctx, v, cached, status, w.outputs); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: w.retryAfter(failed, cached, status)}, nil
}

// reconciliation is one reconciliation of a VirtualIngress.
type reconciliation struct {
	*reconciler
	*resolution

	v *v1alpha1.VirtualIngress
	// parts are the wanted Ingress or routes.
	parts []part
	// outputs are the existing ones.
	outputs []client.Object
	// wanted has the kinds and names of the generated objects that must exist.
	wanted map[string]bool
	// pruned reports that all others were deleted.
	pruned bool
}

// retryAfter returns when to reconcile again without an event; 0 for never.
func (w *reconciliation) retryAfter(failed *fault, cached, status v1alpha1.VirtualIngressStatus) time.Duration {
	switch {
	case failed != nil:
		return failed.retry
	case (w.v.Spec.BackendMode == v1alpha1.BackendModeAlias || w.v.Spec.RequireEndpoints) && !reflect.DeepEqual(cached.Backends, status.Backends):
		return staleRetry // EndpointSlices are mapped to VirtualIngresses by the cached status, so that changes may have been missed
	}
	return 0
}

// run applies the generated objects. It begins with the aliases and deletes unneeded objects last, so that no Ingress or
// route names a Service that does not exist.
func (w *reconciliation) run(ctx context.Context) error {
	kinds, err := w.kinds.watch(ctx, w.v)
	if err != nil {
		return err
	}
	for _, part := range w.parts {
		current, _ := newOutput(outputOf(w.v))
		err := w.client.Get(ctx, client.ObjectKey{Namespace: w.v.Namespace, Name: part.name}, current)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading %s %s of VirtualIngress %s: %w", outputOf(w.v), part.name, keyOf(w.v), err)
		}
		if err == nil && isGeneratedFrom(current, w.v) {
			w.outputs = append(w.outputs, current)
		}
	}
	if err := w.applyAliases(ctx); err != nil {
		return err
	}
	switch {
	case w.remove:
		for _, output := range w.outputs {
			if err := w.writer.remove(ctx, output); err != nil {
				return err
			}
		}
		w.outputs = nil
	case !w.complete(), w.hostWithheld():
		return nil // existing objects stay
	default:
		if err := w.applyOutputs(ctx); err != nil {
			return err
		}
	}
	return w.prune(ctx, kinds)
}

// hostWithheld reports whether a generated object would get a host that another VirtualIngress holds. An object that
// already has the host keeps it, so that a host in use is never removed.
func (w *reconciliation) hostWithheld() bool {
	return slices.ContainsFunc(w.conflicts, func(c hostConflict) bool {
		return !slices.ContainsFunc(w.outputs, func(o client.Object) bool { return slices.Contains(hostsIn(o), c.host) })
	})
}

// applyOutputs applies the Ingress or the routes. A fault of one does not affect the others.
func (w *reconciliation) applyOutputs(ctx context.Context) error {
	objects, err := translate(w.v, w.policy, w.resolution)
	if err != nil {
		return err
	}
	var errs []error
	w.outputs = nil
	for _, want := range objects {
		stored, err := w.apply(ctx, want)
		if stored != nil {
			w.outputs = append(w.outputs, stored)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// apply applies a generated object, and returns it as stored.
func (w *reconciliation) apply(ctx context.Context, want client.Object) (client.Object, error) {
	w.wanted[describe(want)] = true
	return w.writer.apply(ctx, w.v, want)
}

// prune deletes the generated objects that are no longer wanted: first what names Services, then these, then their
// endpoints. While routes are pending, previous objects stay with all that they may name.
func (w *reconciliation) prune(ctx context.Context, kinds []v1alpha1.VirtualIngressOutput) error {
	keep := w.pending() && !w.remove
	for _, kind := range kinds {
		_, list := newOutput(kind)
		if kept, err := w.pruneList(ctx, list, keep); err != nil || kept {
			return err
		}
	}
	w.pruned = true
	if !w.policy.Aliases {
		return nil
	}
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}} {
		if _, err := w.pruneList(ctx, list, false); err != nil {
			return err
		}
	}
	return nil
}

// pruneList deletes the generated objects of a kind that are no longer wanted, or keeps them and reports whether there are any.
func (w *reconciliation) pruneList(ctx context.Context, list client.ObjectList, keep bool) (kept bool, err error) {
	owned := client.MatchingFields{ownerIndex: string(w.v.UID)}
	if err := w.client.List(ctx, list, client.InNamespace(w.v.Namespace), owned, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the objects generated from VirtualIngress %s: %w", keyOf(w.v), err)
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		switch {
		case !ok || w.wanted[describe(object)]:
			return nil
		case keep:
			kept = true
			return nil
		}
		return w.writer.remove(ctx, object)
	})
	return kept, err
}

// ready returns the reason and the message of the condition Ready. conditions are the routes' conditions.
func (w *reconciliation) ready(failed *fault, conditions []metav1.Condition) (reason, message string) {
	if failed != nil {
		return failed.reason, failed.message
	}
	reason, message = w.fault()
	if reason != "" {
		return reason, message + "; " + w.consequence()
	}
	for _, c := range conditions {
		if c.Status == metav1.ConditionFalse {
			return refusals[c.Type], c.Message
		}
	}
	for _, c := range conditions {
		if c.Status == metav1.ConditionUnknown {
			return v1alpha1.ReasonPending, c.Message
		}
	}
	return v1alpha1.ReasonResolved, w.summary()
}

// summary returns which Services the generated objects name.
func (w *reconciliation) summary() string {
	text := fmt.Sprintf("%s %s is as specified", outputOf(w.v), w.parts[0].name)
	if more := len(w.parts) - 1; more > 0 {
		text = fmt.Sprintf("%s %s and %d more are as specified", outputOf(w.v), w.parts[0].name, more)
	}
	if len(w.backends) == 0 {
		return text
	}
	list := make([]string, len(w.backends))
	for i, b := range w.backends {
		list[i] = b.source.text() + " resolves to Service " + b.inUse
		if b.alias != "" {
			list[i] += " with alias " + b.alias
		}
	}
	return text + ": " + strings.Join(list, "; ")
}

// consequence returns the effect of a fault on the generated objects.
func (w *reconciliation) consequence() string {
	kind := string(outputOf(w.v))
	switch {
	case w.remove:
		return "the " + kind + " is deleted until a Service matches"
	case len(w.conflicts) > 0 && w.complete() && !w.hostWithheld():
		return "the " + kind + " already has the host, and keeps it"
	case w.complete() && !w.hostWithheld():
		return "the " + kind + " names the last valid Service"
	case len(w.outputs) > 0 || len(w.v.Status.Hosts) > 0:
		return "the existing " + kind + " is not changed"
	}
	return "the " + kind + " does not exist yet"
}

// status returns the status of the VirtualIngress.
func (w *reconciliation) status(failed *fault) (v1alpha1.VirtualIngressStatus, error) {
	conditions := w.routeConditions()
	reason, message := w.ready(failed, conditions)
	s := v1alpha1.VirtualIngressStatus{ObservedGeneration: w.v.Generation, Conditions: slices.Clone(w.v.Status.Conditions)}
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: w.v.Generation}
	if reason == v1alpha1.ReasonResolved {
		ready.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, ready)
	for _, b := range w.backends {
		backend := v1alpha1.VirtualIngressBackendStatus{Selector: b.source.text(), Service: b.inUse, Alias: b.alias, Reason: b.reason, Message: b.message}
		if b.source.namespace != w.v.Namespace {
			backend.Namespace = b.source.namespace
		}
		s.Backends = append(s.Backends, backend)
	}
	for _, c := range conditions {
		meta.SetStatusCondition(&s.Conditions, c)
	}
	if len(conditions) == 0 { // there may be some of previous routes
		for kind := range refusals {
			meta.RemoveStatusCondition(&s.Conditions, kind)
		}
	}
	if !w.pruned { // objects of the previous output may exist
		if outputOf(w.v) != v1alpha1.OutputIngress {
			s.IngressName, s.LoadBalancer = w.v.Status.IngressName, w.v.Status.LoadBalancer
		}
		s.Routes, s.Hosts = slices.Clone(w.v.Status.Routes), slices.Clone(w.v.Status.Hosts)
	}
	for _, output := range w.outputs {
		for _, host := range hostsIn(output) {
			if !slices.Contains(s.Hosts, host) {
				s.Hosts = append(s.Hosts, host)
			}
		}
		if ingress, ok := output.(*networkingv1.Ingress); ok {
			s.IngressName = ingress.Name
			return s, convert(ingress.Status.LoadBalancer, &s.LoadBalancer)
		}
		if route := (v1alpha1.VirtualIngressRoute{Kind: outputOf(w.v), Name: output.GetName()}); !slices.Contains(s.Routes, route) {
			s.Routes = append(s.Routes, route)
		}
	}
	return s, nil
}

// writeStatus writes the status if it differs from the cached one. If the condition Ready has changed, it records
// Events of the VirtualIngress and of the generated objects.
func (r *reconciler) writeStatus(
	ctx context.Context, v *v1alpha1.VirtualIngress, cached, status v1alpha1.VirtualIngressStatus, outputs []client.Object,
) error {
	before := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	if !reflect.DeepEqual(cached, status) {
		if err := report.Status(ctx, r.client, kindVirtualIngress, keyOf(v), status, fieldManager); err != nil {
			return err
		}
	}
	r.written.Store(keyOf(v), &v1alpha1.VirtualIngress{ObjectMeta: metav1.ObjectMeta{UID: v.UID}, Status: status})
	now := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if before != nil && before.Reason == now.Reason && before.Message == now.Message {
		return nil
	}
	level := corev1.EventTypeWarning
	if now.Status == metav1.ConditionTrue || now.Reason == v1alpha1.ReasonPending {
		level = corev1.EventTypeNormal
	}
	note := report.Note(now.Message)
	r.recorder.Eventf(v, nil, level, now.Reason, "Resolve", "%s", note)
	for _, output := range outputs {
		regarding := copyOf(output)
		gvk, err := r.client.GroupVersionKindFor(regarding) // objects from the cache lack it
		if err != nil {
			return fmt.Errorf("recording an Event: %w", err)
		}
		regarding.GetObjectKind().SetGroupVersionKind(gvk)
		r.recorder.Eventf(regarding, v, level, now.Reason, "Resolve", "%s", note)
	}
	return nil
}
