package ingress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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

// rejectedWait is after how long is tried again what the API server has refused, which may be for
// a webhook's sake, and what was somebody else's.
const rejectedWait = 15 * time.Second

// reconciler keeps what is made of VirtualIngresses.
type reconciler struct {
	client    client.Client
	policy    Policy
	directory *directory
	writer    *writer
	known     *knowledge
	recorder  events.EventRecorder
}

// Reconcile is reconcile.Reconciler's.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	v := &v1alpha1.VirtualIngress{}
	if err := r.client.Get(ctx, request.NamespacedName, v); err != nil {
		r.known.forget(request.NamespacedName)
		r.writer.guard.forget(request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if v.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // what is made of it goes with it
	}
	stored := *v.Status.DeepCopy()
	if last, ok := r.known.last(v); ok {
		v.Status = last
	}
	arrived := r.known.arrived(request.NamespacedName)
	work := &work{reconciler: r, v: v, resolution: resolve(v, r.policy, r.directory)}
	err := work.do(ctx)
	reason, message := work.verdict(err)
	if err != nil && reason == "" { // nothing that anybody has to know of: it is tried again
		if !arrived.IsZero() {
			r.known.seen(request.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	if work.wrote && !arrived.IsZero() {
		r.known.latency.Observe(time.Since(arrived).Seconds())
	}
	status := work.status(reason, message)
	if err := r.say(ctx, v, stored, status, work.ingress); err != nil {
		return ctrl.Result{}, err
	}
	switch reason {
	case v1alpha1.ReasonRejected, v1alpha1.ReasonConflict:
		return ctrl.Result{RequeueAfter: rejectedWait}, nil
	case v1alpha1.ReasonContested:
		return ctrl.Result{RequeueAfter: contested(err)}, nil
	}
	return ctrl.Result{}, nil
}

// work is one look after one VirtualIngress.
type work struct {
	*reconciler
	*resolution

	v *v1alpha1.VirtualIngress
	// found is the Ingress of the name, whoever's it is; nil for none.
	found *networkingv1.Ingress
	// ingress is the same, if it is generated; nil for none.
	ingress *networkingv1.Ingress
	// there: there is an Ingress now.
	there bool
	// wrote: the Ingress or an alias has been written.
	wrote bool
}

// do writes what is made of the VirtualIngress: the aliases first, and what is not wanted any
// more last, so that the Ingress never names what is not there.
func (w *work) do(ctx context.Context) error {
	owned := &networkingv1.IngressList{}
	if err := w.client.List(ctx, owned, w.ours()...); err != nil {
		return fmt.Errorf("listing Ingresses: %w", err)
	}
	name := ingressName(w.v, w.policy)
	is := &networkingv1.Ingress{}
	switch err := w.client.Get(ctx, types.NamespacedName{Namespace: w.v.Namespace, Name: name}, is); {
	case err == nil:
		w.found = is
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("looking for the Ingress: %w", err)
	}
	if w.found != nil && madeOf(w.found, w.v) {
		w.ingress, w.there = w.found, true
	}
	if err := w.aliases(ctx); err != nil {
		return err
	}
	switch {
	case w.remove:
		if w.ingress != nil {
			if err := w.writer.remove(ctx, w.ingress); err != nil {
				return err
			}
		}
		w.there = false
	case !w.complete(), w.withheld():
		return nil // what there is, stays
	default:
		if err := w.write(ctx); err != nil {
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

// withheld reports whether the Ingress would get a host that is another's. One that it has from
// before it keeps, so that nothing that works is taken down.
func (w *work) withheld() bool {
	return slices.ContainsFunc(w.claimed, func(c claimed) bool {
		return w.ingress == nil || !slices.ContainsFunc(w.ingress.Spec.Rules, func(r networkingv1.IngressRule) bool { return r.Host == c.host })
	})
}

// ours are the options by which what is made of the VirtualIngress is listed. It is not copied, and
// must not be changed.
func (w *work) ours() []client.ListOption {
	return []client.ListOption{client.InNamespace(w.v.Namespace), client.MatchingFields{ownerIndex: string(w.v.UID)}, client.UnsafeDisableDeepCopy}
}

// write has the Ingress be as it ought to.
func (w *work) write(ctx context.Context) error {
	reason, _ := w.fault()
	want := translate(w.v, w.policy, w.resolution, cmp.Or(reason, v1alpha1.ReasonResolved))
	var is client.Object
	if w.found != nil {
		is = w.found
	}
	wrote, err := w.writer.apply(ctx, w.v, want, is)
	w.wrote = w.wrote || wrote
	w.there = w.there || err == nil
	return err
}

// verdict is the reason of the condition Ready, with its message. It is empty for a fault that is
// none of the object's.
func (w *work) verdict(err error) (reason, message string) {
	reason, message = w.fault()
	switch {
	case err == nil && reason == "":
		return v1alpha1.ReasonResolved, w.summary()
	case err == nil:
		return reason, message + "; " + w.consequence()
	case isConflict(err):
		return v1alpha1.ReasonConflict, err.Error()
	case contested(err) > 0:
		return v1alpha1.ReasonContested, err.Error()
	case refused(err):
		return v1alpha1.ReasonRejected, err.Error()
	}
	return "", ""
}

// summary says what the Ingress names.
func (w *work) summary() string {
	text := "Ingress " + ingressName(w.v, w.policy) + " is as wanted"
	if len(w.backends) == 0 {
		return text
	}
	list := make([]string, len(w.backends))
	for i, b := range w.backends {
		list[i] = b.source.text() + " is Service " + b.inUse
		if b.alias != "" {
			list[i] += ", by its alias " + b.alias
		}
	}
	return text + ": " + strings.Join(list, "; ")
}

// consequence says what becomes of the Ingress while a Service is missing.
func (w *work) consequence() string {
	switch {
	case w.remove:
		return "there is no Ingress meanwhile"
	case len(w.claimed) > 0 && w.complete() && !w.withheld():
		return "the Ingress has the host from before, and keeps it"
	case w.complete() && !w.withheld():
		return "the Ingress names the last one that was good"
	case w.there:
		return "the Ingress stays as it was"
	}
	return "there is no Ingress yet"
}

// status is what there is to say of the VirtualIngress.
func (w *work) status(reason, message string) v1alpha1.VirtualIngressStatus {
	s := v1alpha1.VirtualIngressStatus{ObservedGeneration: w.v.Generation, Conditions: slices.Clone(w.v.Status.Conditions)}
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: w.v.Generation}
	if reason == v1alpha1.ReasonResolved {
		ready.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, ready)
	if w.there {
		s.IngressName = ingressName(w.v, w.policy)
	}
	for _, b := range w.backends {
		one := v1alpha1.VirtualIngressBackendStatus{Selector: b.source.text(), Service: b.inUse, Alias: b.alias, Reason: b.reason, Message: b.message}
		if b.source.namespace != w.v.Namespace {
			one.Namespace = b.source.namespace
		}
		s.Backends = append(s.Backends, one)
	}
	if w.there && w.ingress != nil {
		s.LoadBalancer = reached(w.ingress)
	}
	return s
}

// reached is where an Ingress is reached.
func reached(i *networkingv1.Ingress) v1alpha1.VirtualIngressLoadBalancer {
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

// say writes the status if it is another one than is stored, and tells what has changed in Events,
// of the VirtualIngress and of its Ingress.
func (r *reconciler) say(ctx context.Context, v *v1alpha1.VirtualIngress, stored, status v1alpha1.VirtualIngressStatus, ingress *networkingv1.Ingress) error {
	before := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	if !reflect.DeepEqual(stored, status) {
		if err := report.Status(ctx, r.client, kind, keyOf(v), status, manager); err != nil {
			return err //nolint:wrapcheck // it says what it was
		}
	}
	r.known.say(v, status)
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
		of := ingress.DeepCopy()
		of.TypeMeta = metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"}
		r.recorder.Eventf(of, v, level, now.Reason, "Resolve", "%s", note)
	}
	return nil
}

// aliases has the Services of fixed names and their endpoints be as they ought to.
func (w *work) aliases(ctx context.Context) error {
	var mirrored []types.NamespacedName
	for _, b := range w.backends {
		if b.alias != "" && b.inUse != "" {
			mirrored = append(mirrored, types.NamespacedName{Namespace: b.source.namespace, Name: b.inUse})
		}
	}
	w.directory.setMirrored(keyOf(w.v), mirrored) // before their endpoints are read, so that no change is missed
	var faults []error
	for _, b := range w.backends {
		if b.alias != "" && w.policy.Aliases {
			faults = append(faults, w.alias(ctx, b))
		}
	}
	return errors.Join(faults...)
}

// alias has one Service of a fixed name be as it ought to, and its endpoints.
func (w *work) alias(ctx context.Context, b *backend) error {
	is := w.directory.service(types.NamespacedName{Namespace: w.v.Namespace, Name: b.alias})
	selects := is != nil && len(is.Spec.Selector) > 0
	if b.service != nil {
		var live client.Object
		if is != nil {
			live = is
		}
		want := alias(w.v, b)
		wrote, err := w.writer.apply(ctx, w.v, want, live)
		if err != nil {
			return err
		}
		w.wrote = w.wrote || wrote
		selects = len(want.Spec.Selector) > 0
	}
	return w.mirror(ctx, b, selects)
}

// mirror copies the endpoints of the Service in use, for an alias that does not select pods. Where
// that Service is gone, so are its endpoints: their addresses may be somebody else's by now. Nobody
// else deletes the endpoints of a Service that has selected pods before.
func (w *work) mirror(ctx context.Context, b *backend, selects bool) error {
	there, err := w.slices(ctx, w.v.Namespace, b.alias)
	if err != nil {
		return err
	}
	known := map[string]*discoveryv1.EndpointSlice{}
	for i := range there {
		by := there[i].Labels[discoveryv1.LabelManagedBy]
		switch {
		case madeOf(&there[i], w.v), !selects && by == endpointSliceController:
			known[there[i].Name] = &there[i]
		case !selects && by == mirroringController: // of the Endpoints that were made of the pods, and are left as well
			if err := w.removeEndpoints(ctx, b.alias); err != nil {
				return err
			}
		}
	}
	if !selects && b.inUse != "" {
		originals, err := w.slices(ctx, b.source.namespace, b.inUse)
		if err != nil {
			return err
		}
		for i := range originals {
			want := mirror(w.v, b.alias, &originals[i])
			var is client.Object
			if k := known[want.Name]; k != nil {
				is = k
			}
			if _, err := w.writer.apply(ctx, w.v, want, is); err != nil {
				return err
			}
			delete(known, want.Name)
		}
	}
	for _, one := range known {
		if err := w.writer.remove(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// removeEndpoints deletes the Endpoints of an alias.
func (w *work) removeEndpoints(ctx context.Context, alias string) error {
	endpoints := &metav1.PartialObjectMetadata{}
	endpoints.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Endpoints"))
	endpoints.Namespace, endpoints.Name = w.v.Namespace, alias
	if err := client.IgnoreNotFound(w.client.Delete(ctx, endpoints)); err != nil {
		return fmt.Errorf("deleting the former Endpoints of %s: %w", alias, err)
	}
	return nil
}

// slices are the EndpointSlices of a Service.
func (w *work) slices(ctx context.Context, namespace, service string) ([]discoveryv1.EndpointSlice, error) {
	list := &discoveryv1.EndpointSliceList{}
	if err := w.client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{serviceIndex: service}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the endpoints of %s/%s: %w", namespace, service, err)
	}
	return list.Items, nil
}

// prune deletes the aliases that are not wanted any more, and their endpoints.
func (w *work) prune(ctx context.Context) error {
	if !w.policy.Aliases {
		return nil
	}
	owned := &corev1.ServiceList{}
	if err := w.client.List(ctx, owned, w.ours()...); err != nil {
		return fmt.Errorf("listing aliases: %w", err)
	}
	for i := range owned.Items {
		s := &owned.Items[i]
		if slices.ContainsFunc(w.backends, func(b *backend) bool { return b.alias == s.Name }) {
			continue
		}
		mirrors, err := w.slices(ctx, s.Namespace, s.Name)
		if err != nil {
			return err
		}
		for j := range mirrors {
			if madeOf(&mirrors[j], w.v) {
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
