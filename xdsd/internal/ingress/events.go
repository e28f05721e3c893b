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

// queue is the work queue of the controller.
type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// onChange returns a handler that calls affected with an object before and after each change, and enqueues the
// VirtualIngresses that it returns. The object is nil before its creation and after its deletion.
func onChange(affected func(before, after client.Object) []types.NamespacedName) handler.EventHandler {
	enqueue := func(q queue, before, after client.Object) {
		for _, key := range affected(before, after) {
			q.Add(ctrl.Request{NamespacedName: key})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(q, nil, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { enqueue(q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(q, e.Object, nil) },
	}
}

// onVirtualIngress updates the directory, and enqueues a VirtualIngress and those with a conflicting host.
func (r *reconciler) onVirtualIngress() handler.EventHandler {
	return onChange(func(before, after client.Object) []types.NamespacedName {
		v, ok := after.(*v1alpha1.VirtualIngress)
		if !ok {
			r.directory.forget(keyOf(before))
			return append(r.directory.setClaim(keyOf(before), nil), keyOf(before))
		}
		if before != nil && before.GetUID() == after.GetUID() && before.GetGeneration() == after.GetGeneration() &&
			maps.Equal(before.GetLabels(), after.GetLabels()) && maps.Equal(before.GetAnnotations(), after.GetAnnotations()) {
			return nil // no relevant field has changed; this controller writes the status
		}
		r.directory.setEntry(keyOf(v), sourcesOf(v), r.generatedObjects(v))
		return append(r.directory.setClaim(keyOf(v), claimOf(v)), keyOf(v))
	})
}

// generatedObjects returns the Ingress and the aliases of a VirtualIngress. Their names do not depend on the
// selected Services.
func (r *reconciler) generatedObjects(v *v1alpha1.VirtualIngress) []generated {
	list := []generated{{"Ingress", types.NamespacedName{Namespace: v.Namespace, Name: ingressName(v, r.policy)}}}
	if v.Spec.BackendMode == v1alpha1.BackendModeAlias {
		for _, s := range sourcesOf(v) {
			list = append(list, generated{"Service", types.NamespacedName{Namespace: v.Namespace, Name: aliasName(v, s, r.policy.of(v).Suffix)}})
		}
	}
	return list
}

// onService updates the directory, and enqueues the VirtualIngresses that select or generate a Service before or
// after the change.
func (r *reconciler) onService() handler.EventHandler {
	return onChange(func(before, after client.Object) []types.NamespacedName {
		s, _ := after.(*corev1.Service)
		object := after
		if s == nil {
			object = before
		}
		list := r.directory.setService(keyOf(object), s)
		for _, key := range list {
			r.statuses.noteChange(key)
		}
		return append(list, r.generatorsOf("Service", before, after)...)
	})
}

// onGenerated enqueues the VirtualIngresses that generate an object of this kind.
func (r *reconciler) onGenerated(kind string) handler.EventHandler {
	return onChange(func(before, after client.Object) []types.NamespacedName { return r.generatorsOf(kind, before, after) })
}

// generatorsOf returns the VirtualIngresses that own an object or generate one of its name. An update of an object
// of another client affects none.
func (r *reconciler) generatorsOf(kind string, before, after client.Object) []types.NamespacedName {
	object := after
	if after == nil {
		object = before
	}
	if generator, ok := generatorOf(object); ok {
		return append(r.directory.generatorsOf(kind, keyOf(object)), generator)
	}
	if before != nil && after != nil && !isGenerated(before) {
		return nil
	}
	return r.directory.generatorsOf(kind, keyOf(object))
}

// onEndpointSlice enqueues the VirtualIngresses that mirror an EndpointSlice, own it, or generate its Service.
func (r *reconciler) onEndpointSlice() handler.EventHandler {
	return onChange(func(before, after client.Object) []types.NamespacedName {
		var list []types.NamespacedName
		for _, object := range []client.Object{before, after} {
			if object == nil {
				continue
			}
			if generator, ok := generatorOf(object); ok {
				list = append(list, generator)
				continue
			}
			service := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetLabels()[discoveryv1.LabelServiceName]}
			list = append(append(list, r.directory.mirroringOf(service)...), r.directory.generatorsOf("Service", service)...)
		}
		return list
	})
}

// onNamespace stores the consent of a namespace.
func (r *reconciler) onNamespace() handler.EventHandler {
	return onChange(func(before, after client.Object) []types.NamespacedName {
		if after == nil {
			return r.directory.setConsent(before.GetName(), "")
		}
		return r.directory.setConsent(after.GetName(), after.GetAnnotations()[v1alpha1.AnnotationAllowAliases])
	})
}
