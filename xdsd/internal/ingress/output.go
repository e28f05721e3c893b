package ingress

import (
	"cmp"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// maxRules is the number of rules that an HTTPRoute may have.
const maxRules = 16

// outputOf returns the kind of the objects that are generated from a VirtualIngress.
func outputOf(v *v1alpha1.VirtualIngress) v1alpha1.VirtualIngressOutput {
	return cmp.Or(v.Spec.Output, v1alpha1.OutputIngress)
}

// newOutput returns an empty object of a kind, and an empty list of this kind.
func newOutput(kind v1alpha1.VirtualIngressOutput) (client.Object, client.ObjectList) {
	switch kind {
	case v1alpha1.OutputHTTPRoute:
		return &gatewayv1.HTTPRoute{}, &gatewayv1.HTTPRouteList{}
	case v1alpha1.OutputTLSRoute:
		return &gatewayv1.TLSRoute{}, &gatewayv1.TLSRouteList{}
	}
	return &networkingv1.Ingress{}, &networkingv1.IngressList{}
}

// part is one generated Ingress or route: its name, its host, and the paths or the backends of that host. An Ingress has all
// rules of the VirtualIngress.
type part struct {
	name     string
	host     string
	paths    []v1alpha1.VirtualIngressPath
	backends []v1alpha1.VirtualIngressWeightedBackend
}

// partsOf returns the Ingress, or the routes of each host. The name of a route depends only on its host and on how many paths
// precede it, so that another host does not rename it.
func partsOf(v *v1alpha1.VirtualIngress, p Policy) []part {
	name := v.Name + p.forObject(v).Suffix
	if outputOf(v) == v1alpha1.OutputIngress {
		return []part{{name: name}}
	}
	var hosts []part
	for i := range v.Spec.Rules {
		rule := &v.Spec.Rules[i]
		at := slices.IndexFunc(hosts, func(h part) bool { return h.host == rule.Host })
		if at < 0 {
			at, hosts = len(hosts), append(hosts, part{host: rule.Host})
		}
		if rule.HTTP != nil {
			hosts[at].paths = append(hosts[at].paths, rule.HTTP.Paths...)
		}
		if rule.TLS != nil {
			hosts[at].backends = append(hosts[at].backends, rule.TLS.Backends...)
		}
	}
	var parts []part
	for _, h := range hosts {
		h.name = name + "-" + digest(h.host)
		parts = append(parts, h)
		for i := 2; len(h.paths) > maxRules; i++ {
			parts[len(parts)-1].paths, h.paths = h.paths[:maxRules], h.paths[maxRules:]
			parts = append(parts, part{name: fmt.Sprintf("%s-%d", h.name, i), host: h.host, paths: h.paths})
		}
	}
	return parts
}

// object returns the Ingress or the route.
func (p part) object(v *v1alpha1.VirtualIngress, meta metav1.ObjectMeta) (client.Object, error) {
	common, hostnames := gatewayv1.CommonRouteSpec{ParentRefs: v.Spec.ParentRefs}, []gatewayv1.Hostname(nil)
	if p.host != "" {
		hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(p.host)}
	}
	switch outputOf(v) {
	case v1alpha1.OutputHTTPRoute:
		rules := make([]gatewayv1.HTTPRouteRule, len(p.paths))
		for i := range p.paths {
			if err := httpRule(&p.paths[i], &rules[i]); err != nil {
				return nil, err
			}
		}
		return &gatewayv1.HTTPRoute{
			TypeMeta: metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "HTTPRoute"}, ObjectMeta: meta,
			Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: common, Hostnames: hostnames, Rules: rules},
		}, nil
	case v1alpha1.OutputTLSRoute:
		return &gatewayv1.TLSRoute{
			TypeMeta: metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "TLSRoute"}, ObjectMeta: meta,
			Spec: gatewayv1.TLSRouteSpec{
				CommonRouteSpec: common, Hostnames: hostnames, Rules: []gatewayv1.TLSRouteRule{{BackendRefs: weighted(p.backends)}},
			},
		}, nil
	}
	out := &networkingv1.Ingress{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"}, ObjectMeta: meta,
	}
	return out, convert(v.Spec, &out.Spec) // the fields that a VirtualIngress adds are ignored
}

// httpRule sets the rule of an HTTPRoute for a path.
func httpRule(path *v1alpha1.VirtualIngressPath, rule *gatewayv1.HTTPRouteRule) error {
	match := gatewayv1.HTTPRouteMatch{
		Path:    &gatewayv1.HTTPPathMatch{Type: new(gatewayv1.PathMatchPathPrefix), Value: &path.Path},
		Headers: path.Headers, QueryParams: path.QueryParams, Method: path.Method,
	}
	if path.PathType == v1alpha1.PathTypeExact {
		match.Path.Type = new(gatewayv1.PathMatchExact)
	}
	rule.Matches, rule.Timeouts = []gatewayv1.HTTPRouteMatch{match}, path.Timeouts
	backends := weighted(path.Backends)
	if path.Backend != nil {
		backends = []gatewayv1.BackendRef{backendRef(path.Backend, 1)}
	}
	for _, b := range backends {
		rule.BackendRefs = append(rule.BackendRefs, gatewayv1.HTTPBackendRef{BackendRef: b})
	}
	return convert(path.Filters, &rule.Filters)
}

// weighted returns the backends of a route.
func weighted(backends []v1alpha1.VirtualIngressWeightedBackend) []gatewayv1.BackendRef {
	var refs []gatewayv1.BackendRef
	for i := range backends {
		refs = append(refs, backendRef(&v1alpha1.VirtualIngressBackend{Service: &backends[i].Service}, weightOf(&backends[i])))
	}
	return refs
}

// backendRef returns a backend of a route, with the API server's defaults.
func backendRef(b *v1alpha1.VirtualIngressBackend, weight int32) gatewayv1.BackendRef {
	ref := gatewayv1.BackendRef{Weight: &weight}
	if r := b.Resource; r != nil {
		ref.Group, ref.Kind, ref.Name = new(gatewayv1.Group("")), new(gatewayv1.Kind(r.Kind)), gatewayv1.ObjectName(r.Name)
		if r.APIGroup != nil {
			*ref.Group = gatewayv1.Group(*r.APIGroup)
		}
		return ref
	}
	ref.Group, ref.Kind = new(gatewayv1.Group("")), new(gatewayv1.Kind("Service"))
	ref.Name, ref.Port = gatewayv1.ObjectName(b.Service.Name), &b.Service.Port.Number
	return ref
}

// hostsIn returns the hosts of a generated object.
func hostsIn(object client.Object) []string {
	var hosts []string
	if ingress, ok := object.(*networkingv1.Ingress); ok {
		for i := range ingress.Spec.Rules {
			if host := ingress.Spec.Rules[i].Host; host != "" {
				hosts = append(hosts, host)
			}
		}
	}
	hostnames, _ := fieldsOfRoute(object)
	for _, host := range hostnames {
		hosts = append(hosts, string(host))
	}
	return hosts
}

// fieldsOfRoute returns the hostnames of a route, and what the controllers of Gateways have reported about it; nothing for an
// Ingress.
func fieldsOfRoute(object client.Object) ([]gatewayv1.Hostname, []gatewayv1.RouteParentStatus) {
	switch object := object.(type) {
	case *gatewayv1.HTTPRoute:
		return object.Spec.Hostnames, object.Status.Parents
	case *gatewayv1.TLSRoute:
		return object.Spec.Hostnames, object.Status.Parents
	}
	return nil, nil
}
