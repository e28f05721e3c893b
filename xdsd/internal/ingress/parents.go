package ingress

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// refusals are the reasons of the condition Ready for conditions of routes that are False, by their type.
var refusals = map[string]string{
	string(gatewayv1.RouteConditionAccepted):     v1alpha1.ReasonNotAccepted,
	string(gatewayv1.RouteConditionResolvedRefs): v1alpha1.ReasonRefsNotResolved,
}

// pending reports whether a Gateway has not accepted one of the routes yet, or cannot resolve its references. An Ingress is
// never pending.
func (w *reconciliation) pending() bool {
	return outputOf(w.v) != v1alpha1.OutputIngress && (len(w.outputs) < len(w.parts) ||
		slices.ContainsFunc(w.routeConditions(), func(c metav1.Condition) bool { return c.Status != metav1.ConditionTrue }))
}

// routeConditions returns the conditions Accepted and ResolvedRefs of all routes and their Gateways: False if one is False, else
// Unknown if one is missing. It returns none for an Ingress.
func (w *reconciliation) routeConditions() []metav1.Condition {
	if outputOf(w.v) == v1alpha1.OutputIngress || len(w.outputs) == 0 {
		return nil
	}
	var list []metav1.Condition
	for _, kind := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
		all := metav1.Condition{Type: string(kind), Status: metav1.ConditionTrue, Reason: string(kind), ObservedGeneration: w.v.Generation}
		for _, output := range w.outputs {
			for i := range w.v.Spec.ParentRefs {
				parent := &w.v.Spec.ParentRefs[i]
				c := parentCondition(output, parent, string(kind))
				if c.Status == metav1.ConditionTrue || all.Status == metav1.ConditionFalse || c.Status == all.Status {
					continue
				}
				all.Status, all.Reason = c.Status, c.Reason
				all.Message = fmt.Sprintf("%s of %s: %s", describeParent(w.v.Namespace, parent), describe(output), c.Message)
			}
		}
		list = append(list, all)
	}
	return list
}

// parentCondition returns what the controller of a Gateway has reported about a route.
func parentCondition(route client.Object, parent *gatewayv1.ParentReference, kind string) metav1.Condition {
	_, reported := fieldsOfRoute(route)
	for i := range reported {
		c := meta.FindStatusCondition(reported[i].Conditions, kind)
		if !sameParent(route.GetNamespace(), parent, &reported[i].ParentRef) || c == nil || c.ObservedGeneration < route.GetGeneration() {
			continue
		}
		found := *c // the cache's must not be changed
		if found.Status != metav1.ConditionTrue {
			found.Message = cmp.Or(found.Message, "no message") + " (" + found.Reason + ")"
		}
		return found
	}
	return metav1.Condition{
		Status: metav1.ConditionUnknown, Reason: string(gatewayv1.RouteReasonPending), Message: "its controller has not reported; check that it exists and runs",
	}
}

// absolute returns a reference from a namespace with the API's defaults.
func absolute(namespace string, p *gatewayv1.ParentReference) gatewayv1.ParentReference {
	out := *p.DeepCopy()
	if out.Namespace == nil {
		out.Namespace = new(gatewayv1.Namespace(namespace))
	}
	if out.Group == nil {
		out.Group = new(gatewayv1.Group(gatewayv1.GroupName))
	}
	if out.Kind == nil {
		out.Kind = new(gatewayv1.Kind("Gateway"))
	}
	return out
}

// sameParent reports whether two references from a namespace are the same.
func sameParent(namespace string, a, b *gatewayv1.ParentReference) bool {
	return reflect.DeepEqual(absolute(namespace, a), absolute(namespace, b))
}

// describeParent returns the kind, the namespace and the name of a Gateway, and its listener.
func describeParent(namespace string, parent *gatewayv1.ParentReference) string {
	p := absolute(namespace, parent)
	text := fmt.Sprintf("%s %s/%s", *p.Kind, *p.Namespace, p.Name)
	if p.SectionName != nil {
		text += " listener " + string(*p.SectionName)
	}
	return text
}

// sharesParent reports whether routes of two VirtualIngresses may attach to the same Gateway.
func sharesParent(a, b *v1alpha1.VirtualIngress) bool {
	return slices.ContainsFunc(a.Spec.ParentRefs, func(p gatewayv1.ParentReference) bool {
		return slices.ContainsFunc(b.Spec.ParentRefs, func(q gatewayv1.ParentReference) bool {
			p, q := absolute(a.Namespace, &p), absolute(b.Namespace, &q)
			return *p.Group == *q.Group && *p.Kind == *q.Kind && *p.Namespace == *q.Namespace && p.Name == q.Name
		})
	})
}
