package ingress

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/densityops/oooi/api/v1alpha1"
)

// queue is the work of the controller.
type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// changes calls a function with each object before and after a change; nil where there was none,
// or is none any more. It says who has to be looked after.
func changes(found func(was, is client.Object) []types.NamespacedName) handler.EventHandler {
	tell := func(q queue, was, is client.Object) {
		for _, key := range found(was, is) {
			q.Add(ctrl.Request{NamespacedName: key})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { tell(q, nil, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { tell(q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { tell(q, e.Object, nil) },
	}
}

// onVirtualIngress files what a VirtualIngress asks for.
func (r *reconciler) onVirtualIngress() handler.EventHandler {
	return changes(func(was, is client.Object) []types.NamespacedName {
		v, ok := is.(*v1alpha1.VirtualIngress)
		if !ok {
			r.directory.forget(keyOf(was))
			return append(r.directory.setClaim(keyOf(was), nil), keyOf(was))
		}
		if was != nil && was.GetUID() == is.GetUID() && was.GetGeneration() == is.GetGeneration() &&
			maps.Equal(was.GetLabels(), is.GetLabels()) && maps.Equal(was.GetAnnotations(), is.GetAnnotations()) {
			return nil // its status is what we write
		}
		r.directory.setAsker(keyOf(v), sourcesOf(v), r.makes(v))
		return append(r.directory.setClaim(keyOf(v), claimOf(v)), keyOf(v))
	})
}

// makes are the objects that are made of a VirtualIngress, by names that do not change.
func (r *reconciler) makes(v *v1alpha1.VirtualIngress) []generated {
	list := []generated{{"Ingress", types.NamespacedName{Namespace: v.Namespace, Name: ingressName(v, r.policy)}}}
	if v.Spec.BackendMode == v1alpha1.BackendModeAlias {
		for _, s := range sourcesOf(v) {
			list = append(list, generated{"Service", types.NamespacedName{Namespace: v.Namespace, Name: aliasName(v, s, r.policy.of(v).Suffix)}})
		}
	}
	return list
}

// onService has those looked after who ask for the labels that a Service has or had, and who make
// it.
func (r *reconciler) onService() handler.EventHandler {
	return changes(func(was, is client.Object) []types.NamespacedName {
		s, _ := is.(*corev1.Service)
		object := is
		if s == nil {
			object = was
		}
		list := r.directory.setService(keyOf(object), s)
		for _, key := range list {
			r.known.seen(key)
		}
		return append(list, r.makersOf("Service", was, is)...)
	})
}

// onGenerated has those looked after who make an object of this kind.
func (r *reconciler) onGenerated(kind string) handler.EventHandler {
	return changes(func(was, is client.Object) []types.NamespacedName { return r.makersOf(kind, was, is) })
}

// makersOf are those who make an object or would, and who own it. What becomes of somebody else's
// while it is there does not matter.
func (r *reconciler) makersOf(kind string, was, is client.Object) []types.NamespacedName {
	object := is
	if is == nil {
		object = was
	}
	if maker, made := makerOf(object); made {
		return append(r.directory.makersOf(kind, keyOf(object)), maker)
	}
	if was != nil && is != nil && !isGenerated(was) {
		return nil
	}
	return r.directory.makersOf(kind, keyOf(object))
}

// onEndpointSlice has those looked after who mirror it, and whose mirror it is.
func (r *reconciler) onEndpointSlice() handler.EventHandler {
	return changes(func(was, is client.Object) []types.NamespacedName {
		var list []types.NamespacedName
		for _, object := range []client.Object{was, is} {
			if object == nil {
				continue
			}
			if maker, made := makerOf(object); made {
				list = append(list, maker)
				continue
			}
			service := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetLabels()[discoveryv1.LabelServiceName]}
			list = append(append(list, r.directory.mirrorsOf(service)...), r.directory.makersOf("Service", service)...)
		}
		return list
	})
}

// onNamespace files a namespace's consent.
func (r *reconciler) onNamespace() handler.EventHandler {
	return changes(func(was, is client.Object) []types.NamespacedName {
		if is == nil {
			return r.directory.setConsent(was.GetName(), "")
		}
		return r.directory.setConsent(is.GetName(), is.GetAnnotations()[v1alpha1.AnnotationAllowAliases])
	})
}
