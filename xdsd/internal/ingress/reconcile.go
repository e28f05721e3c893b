package ingress

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/xdsd/internal/report"
)

// rejectedWait is the wait before retrying an object that the API server has rejected, possibly because of a
// webhook, or that belongs to another client.
const rejectedWait = 15 * time.Second

// reconciler reconciles VirtualIngresses.
type reconciler struct {
	client    client.Client
	policy    Policy
	directory *directory
	writer    *writer
	statuses  *statusCache
	recorder  events.EventRecorder
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	v := &v1alpha1.VirtualIngress{}
	if err := r.client.Get(ctx, request.NamespacedName, v); err != nil {
		r.statuses.forget(request.NamespacedName)
		r.writer.guard.forget(request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if v.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // the garbage collector deletes the generated objects
	}
	stored := *v.Status.DeepCopy()
	if last, ok := r.statuses.get(v); ok {
		v.Status = last
	}
	changedAt := r.statuses.takeChange(request.NamespacedName)
	w := &reconciliation{reconciler: r, v: v, resolution: resolve(v, r.policy, r.directory)}
	err := w.run(ctx)
	reason, message := w.ready(err)
	if err != nil && reason == "" { // not caused by the VirtualIngress: retry, and keep the status
		if !changedAt.IsZero() {
			r.statuses.noteChange(request.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	if w.wrote && !changedAt.IsZero() {
		r.statuses.latency.Observe(time.Since(changedAt).Seconds())
	}
	status := w.status(reason, message)
	if err := r.writeStatus(ctx, v, stored, status, w.ingress); err != nil {
		return ctrl.Result{}, err
	}
	switch reason {
	case v1alpha1.ReasonRejected, v1alpha1.ReasonConflict:
		return ctrl.Result{RequeueAfter: rejectedWait}, nil
	case v1alpha1.ReasonContested:
		return ctrl.Result{RequeueAfter: contestedWait(err)}, nil
	}
	return ctrl.Result{}, nil
}

// reconciliation is one reconciliation of a VirtualIngress.
type reconciliation struct {
	*reconciler
	*resolution

	v *v1alpha1.VirtualIngress
	// existing is the Ingress with the generated name, of any owner; nil if there is none.
	existing *networkingv1.Ingress
	// ingress is existing if it is generated from the VirtualIngress; otherwise nil.
	ingress *networkingv1.Ingress
	// exists reports whether the generated Ingress exists.
	exists bool
	// wrote reports whether the Ingress or an alias was written.
	wrote bool
}

// run applies the generated objects. It begins with the aliases and deletes unneeded objects last, so that the
// Ingress never names a Service that does not exist.
func (w *reconciliation) run(ctx context.Context) error {
	owned := &networkingv1.IngressList{}
	if err := w.client.List(ctx, owned, w.ownedOptions()...); err != nil {
		return fmt.Errorf("listing the Ingresses of VirtualIngress %s: %w", keyOf(w.v), err)
	}
	name := ingressName(w.v, w.policy)
	current := &networkingv1.Ingress{}
	switch err := w.client.Get(ctx, types.NamespacedName{Namespace: w.v.Namespace, Name: name}, current); {
	case err == nil:
		w.existing = current
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading Ingress %s/%s: %w", w.v.Namespace, name, err)
	}
	if w.existing != nil && isGeneratedFrom(w.existing, w.v) {
		w.ingress, w.exists = w.existing, true
	}
	if err := w.applyAliases(ctx); err != nil {
		return err
	}
	switch {
	case w.remove:
		if w.ingress != nil {
			if err := w.writer.remove(ctx, w.ingress); err != nil {
				return err
			}
		}
		w.exists = false
	case !w.complete(), w.hostWithheld():
		return nil // existing objects stay
	default:
		if err := w.applyIngress(ctx); err != nil {
			return err
		}
	}
	for i := range owned.Items {
		if owned.Items[i].Name != name {
			if err := w.writer.remove(ctx, &owned.Items[i]); err != nil {
				return err
			}
		}
	}
	return w.prune(ctx)
}

// hostWithheld reports whether the Ingress would get a host that another VirtualIngress holds. An Ingress that
// already has the host keeps it, so that a host in use is never removed.
func (w *reconciliation) hostWithheld() bool {
	return slices.ContainsFunc(w.conflicts, func(c hostConflict) bool {
		return w.ingress == nil || !slices.ContainsFunc(w.ingress.Spec.Rules, func(r networkingv1.IngressRule) bool { return r.Host == c.host })
	})
}

// ownedOptions returns the options that list objects generated from the VirtualIngress. The results are not copied,
// and must not be modified.
func (w *reconciliation) ownedOptions() []client.ListOption {
	return []client.ListOption{client.InNamespace(w.v.Namespace), client.MatchingFields{ownerIndex: string(w.v.UID)}, client.UnsafeDisableDeepCopy}
}

// applyIngress applies the Ingress.
func (w *reconciliation) applyIngress(ctx context.Context) error {
	reason, _ := w.fault()
	want := translate(w.v, w.policy, w.resolution, cmp.Or(reason, v1alpha1.ReasonResolved))
	var current client.Object
	if w.existing != nil {
		current = w.existing
	}
	wrote, err := w.writer.apply(ctx, w.v, want, current)
	w.wrote = w.wrote || wrote
	w.exists = w.exists || err == nil
	return err
}

// ready returns the reason and the message of the condition Ready. The reason is empty for an error that the
// VirtualIngress does not cause.
func (w *reconciliation) ready(err error) (reason, message string) {
	reason, message = w.fault()
	switch {
	case err == nil && reason == "":
		return v1alpha1.ReasonResolved, w.summary()
	case err == nil:
		return reason, message + "; " + w.consequence()
	case isConflict(err):
		return v1alpha1.ReasonConflict, err.Error()
	case contestedWait(err) > 0:
		return v1alpha1.ReasonContested, err.Error()
	case isRejected(err):
		return v1alpha1.ReasonRejected, err.Error()
	}
	return "", ""
}

// summary returns which Services the Ingress names.
func (w *reconciliation) summary() string {
	text := "Ingress " + ingressName(w.v, w.policy) + " is as specified"
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

// consequence returns what a fault means for the Ingress.
func (w *reconciliation) consequence() string {
	switch {
	case w.remove:
		return "the Ingress is deleted until a Service matches"
	case len(w.conflicts) > 0 && w.complete() && !w.hostWithheld():
		return "the Ingress already has the host, and keeps it"
	case w.complete() && !w.hostWithheld():
		return "the Ingress names the last valid Service"
	case w.exists:
		return "the existing Ingress is not changed"
	}
	return "the Ingress does not exist yet"
}

// status returns the status of the VirtualIngress.
func (w *reconciliation) status(reason, message string) v1alpha1.VirtualIngressStatus {
	s := v1alpha1.VirtualIngressStatus{ObservedGeneration: w.v.Generation, Conditions: slices.Clone(w.v.Status.Conditions)}
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: w.v.Generation}
	if reason == v1alpha1.ReasonResolved {
		ready.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, ready)
	if w.exists {
		s.IngressName = ingressName(w.v, w.policy)
	}
	for _, b := range w.backends {
		backend := v1alpha1.VirtualIngressBackendStatus{Selector: b.source.text(), Service: b.inUse, Alias: b.alias, Reason: b.reason, Message: b.message}
		if b.source.namespace != w.v.Namespace {
			backend.Namespace = b.source.namespace
		}
		s.Backends = append(s.Backends, backend)
	}
	if w.exists && w.ingress != nil {
		s.LoadBalancer = loadBalancerOf(w.ingress)
	}
	return s
}

// loadBalancerOf returns the addresses in the status of an Ingress.
func loadBalancerOf(i *networkingv1.Ingress) v1alpha1.VirtualIngressLoadBalancer {
	var out v1alpha1.VirtualIngressLoadBalancer
	for _, in := range i.Status.LoadBalancer.Ingress {
		a := v1alpha1.VirtualIngressAddress{IP: in.IP, Hostname: in.Hostname}
		for _, p := range in.Ports {
			a.Ports = append(a.Ports, v1alpha1.VirtualIngressAddressPort{Port: p.Port, Protocol: string(p.Protocol), Error: p.Error})
		}
		out.Ingress = append(out.Ingress, a)
	}
	return out
}

// writeStatus writes the status if it differs from the stored one. If the condition Ready has changed, it records
// Events of the VirtualIngress and of its Ingress.
func (r *reconciler) writeStatus(
	ctx context.Context, v *v1alpha1.VirtualIngress, stored, status v1alpha1.VirtualIngressStatus, ingress *networkingv1.Ingress,
) error {
	before := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	if !reflect.DeepEqual(stored, status) {
		if err := report.Status(ctx, r.client, kindVirtualIngress, keyOf(v), status, fieldManager); err != nil {
			return err
		}
	}
	r.statuses.set(v, status)
	now := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if before != nil && before.Reason == now.Reason && before.Message == now.Message {
		return nil
	}
	level := corev1.EventTypeWarning
	if now.Status == metav1.ConditionTrue {
		level = corev1.EventTypeNormal
	}
	note := report.Note(now.Message)
	r.recorder.Eventf(v, nil, level, now.Reason, "Resolve", "%s", note)
	if ingress != nil {
		regarding := ingress.DeepCopy()
		regarding.TypeMeta = metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"}
		r.recorder.Eventf(regarding, v, level, now.Reason, "Resolve", "%s", note)
	}
	return nil
}

// prune deletes the aliases that are no longer needed, and their EndpointSlices.
func (w *reconciliation) prune(ctx context.Context) error {
	if !w.policy.Aliases {
		return nil
	}
	owned := &corev1.ServiceList{}
	if err := w.client.List(ctx, owned, w.ownedOptions()...); err != nil {
		return fmt.Errorf("listing the aliases of VirtualIngress %s: %w", keyOf(w.v), err)
	}
	for i := range owned.Items {
		s := &owned.Items[i]
		if slices.ContainsFunc(w.backends, func(b *backend) bool { return b.alias == s.Name }) {
			continue
		}
		mirrors, err := w.endpointSlices(ctx, s.Namespace, s.Name)
		if err != nil {
			return err
		}
		for j := range mirrors {
			if isGeneratedFrom(&mirrors[j], w.v) {
				if err := w.writer.remove(ctx, &mirrors[j]); err != nil {
					return err
				}
			}
		}
		if err := w.writer.remove(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
