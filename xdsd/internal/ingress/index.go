package ingress

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Indexes of the cache.
const (
	referenceIndex = "reference" // VirtualIngresses by what affects them, and Services: see virtualIngressReferences
	ownerIndex     = "owner"     // generated objects by the UID of their VirtualIngress
	serviceIndex   = "service"   // EndpointSlices by the name of their Service
)

func byOwner(object client.Object) []string {
	owner := metav1.GetControllerOf(object)
	if owner == nil || !isGenerated(object) {
		return nil
	}
	return []string{string(owner.UID)}
}

func byService(object client.Object) []string {
	return []string{object.GetLabels()[discoveryv1.LabelServiceName]}
}

// reference returns a key in referenceIndex: an object, a label of Services (kind "label"), or a host (kind "host"). No
// part of it contains a space.
func reference(kind, namespace, name string) string { return kind + " " + namespace + " " + name }

// serviceReferences returns the references to a Service: its name and its labels.
func serviceReferences(object client.Object) []string {
	list := []string{reference("Service", object.GetNamespace(), object.GetName())}
	for key, value := range object.GetLabels() {
		list = append(list, reference("label", object.GetNamespace(), key+"="+value))
	}
	return list
}

// virtualIngressReferences returns an indexer with references to all objects, labels and hosts whose changes affect a
// VirtualIngress: the objects that it selects, uses and generates.
func virtualIngressReferences(p Policy) client.IndexerFunc {
	return func(object client.Object) []string {
		v, ok := object.(*v1alpha1.VirtualIngress)
		if !ok {
			return nil
		}
		var list []string
		for _, part := range partsOf(v, p) {
			list = append(list, reference(string(outputOf(v)), v.Namespace, part.name))
		}
		for _, s := range sourcesOf(v) {
			list = append(list, s.reference())
			if v.Spec.BackendMode == v1alpha1.BackendModeAlias {
				list = append(list, reference("Service", v.Namespace, aliasName(v, s, p.forObject(v).Suffix)))
			}
			if s.namespace != v.Namespace {
				list = append(list, reference("Namespace", "", s.namespace))
			}
			if last := lastService(v, s); last != "" {
				list = append(list, reference("Service", s.namespace, last))
			}
		}
		return append(list, hostReferences(v)...)
	}
}

// referring returns the VirtualIngresses with a reference. They are not copied, and must not be modified.
func referring(ctx context.Context, c client.Reader, reference string) ([]v1alpha1.VirtualIngress, error) {
	list := &v1alpha1.VirtualIngressList{}
	if err := c.List(ctx, list, client.MatchingFields{referenceIndex: reference}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the VirtualIngresses with reference %s: %w", reference, err)
	}
	return list.Items, nil
}

// onReferences returns a handler that enqueues the VirtualIngresses with one of an object's references.
func (r *reconciler) onReferences(references func(client.Object) []string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		return r.requests(ctx, object, references(object))
	})
}

// requests returns requests for the VirtualIngresses with one of an object's references, and for the one that the object
// is generated from.
func (r *reconciler) requests(ctx context.Context, object client.Object, references []string) []reconcile.Request {
	var requests []reconcile.Request
	if generator, ok := generatorOf(object); ok {
		requests = append(requests, reconcile.Request{NamespacedName: generator})
	}
	for _, reference := range references {
		list, err := referring(ctx, r.client, reference)
		if err != nil {
			log.FromContext(ctx).Error(err, "finding the VirtualIngresses that an object affects")
		}
		for i := range list {
			// Of several labels only one is a reference.
			if strings.HasPrefix(reference, "label ") && !slices.ContainsFunc(sourcesOf(&list[i]), func(s source) bool { return s.matches(object) }) {
				continue
			}
			requests = append(requests, reconcile.Request{NamespacedName: keyOf(&list[i])})
		}
	}
	return requests
}

// onEndpointSlice returns a handler that enqueues the VirtualIngresses that an EndpointSlice's Service affects, and the
// one that the EndpointSlice is generated from.
func (r *reconciler) onEndpointSlice() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		service := &corev1.Service{}
		key := client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetLabels()[discoveryv1.LabelServiceName]}
		if r.client.Get(ctx, key, service, client.UnsafeDisableDeepCopy) != nil { // deleted, but possibly in use
			service.Namespace, service.Name = key.Namespace, key.Name
		}
		return append(r.requests(ctx, object, nil), r.requests(ctx, service, serviceReferences(service))...)
	})
}

// outputReferences returns the reference to an Ingress or a route.
func outputReferences(object client.Object) []string {
	return []string{reference(kindOf(object), object.GetNamespace(), object.GetName())}
}

// namespaceReferences returns the reference to a Namespace.
func namespaceReferences(object client.Object) []string {
	return []string{reference("Namespace", "", object.GetName())}
}

// hostReferences returns the references to the hosts of a VirtualIngress, and of its generated objects.
func hostReferences(object client.Object) []string {
	var list []string
	if v, ok := object.(*v1alpha1.VirtualIngress); ok {
		for _, host := range slices.Concat(hostsOf(v), v.Status.Hosts) {
			list = append(list, reference("host", "", host))
		}
	}
	return list
}

// keyOf returns the namespace and the name of an object.
func keyOf(object metav1.Object) client.ObjectKey {
	return client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetName()}
}
