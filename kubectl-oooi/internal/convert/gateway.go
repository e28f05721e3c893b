package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/selector"
)

// ParseGateway parses the Gateway of HTTPRoutes, "[NAMESPACE/]NAME[:LISTENER]".
func ParseGateway(text string) (*gatewayv1.ParentReference, error) {
	rest, listener, hasListener := strings.Cut(text, ":")
	namespace, name, hasNamespace := strings.Cut(rest, "/")
	if !hasNamespace {
		namespace, name = "", rest
	}
	if hasNamespace && namespace == "" || hasListener && listener == "" || len(validation.IsDNS1123Subdomain(name)) > 0 ||
		namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 || listener != "" && len(validation.IsDNS1123Subdomain(listener)) > 0 {
		return nil, fmt.Errorf("gateway %q: must be [NAMESPACE/]NAME[:LISTENER], with valid names", text)
	}
	ref := &gatewayv1.ParentReference{Name: gatewayv1.ObjectName(name)}
	if hasNamespace {
		ref.Namespace = new(gatewayv1.Namespace(namespace))
	}
	if hasListener {
		ref.SectionName = new(gatewayv1.SectionName(listener))
	}
	return ref, nil
}

// toRoutes changes a VirtualIngress, so that HTTPRoutes of the Gateway are generated instead of an Ingress. It warns about fields that an
// HTTPRoute lacks, or interprets differently.
func (c *converter) toRoutes(o *object, v *v1alpha1.VirtualIngress) {
	spec := &v.Spec
	if spec.Output != "" && spec.Output != v1alpha1.OutputIngress {
		spec.ParentRefs = []gatewayv1.ParentReference{*c.gateway}
		return
	}
	spec.Output, spec.ParentRefs = v1alpha1.OutputHTTPRoute, []gatewayv1.ParentReference{*c.gateway}
	if spec.IngressClassName != nil {
		c.warn(o, "spec.ingressClassName", "%s is dropped: the Gateway defines the class", *spec.IngressClassName)
	}
	for i, tls := range spec.TLS {
		c.warn(o, fmt.Sprintf("spec.tls[%d]", i), "field is dropped; set the certificate in Secret %s for %q in a listener of the Gateway", tls.SecretName, tls.Hosts)
	}
	spec.IngressClassName, spec.TLS = nil, nil
	if b := spec.DefaultBackend; b != nil {
		c.warn(o, "spec.defaultBackend", "field is replaced by a rule without host: requests for other paths of the hosts in rules do not reach that rule")
		all := v1alpha1.VirtualIngressPath{Path: "/", PathType: v1alpha1.PathTypePrefix, Backend: b}
		spec.Rules = append(spec.Rules, v1alpha1.VirtualIngressRule{HTTP: &v1alpha1.VirtualIngressHTTP{Paths: []v1alpha1.VirtualIngressPath{all}}})
		spec.DefaultBackend = nil
	}
	for i := range spec.Rules {
		if spec.Rules[i].HTTP == nil {
			c.warn(o, fmt.Sprintf("spec.rules[%d]", i), "delete the rule: it lacks paths, and the API server rejects it with output HTTPRoute")
			continue
		}
		for j := range spec.Rules[i].HTTP.Paths {
			path, field := &spec.Rules[i].HTTP.Paths[j], fmt.Sprintf("spec.rules[%d].http.paths[%d]", i, j)
			if strings.ContainsAny(path.Path, "*()[]|^$?\\") {
				c.warn(o, field+".path", "replace %s: HTTPRoutes compare paths literally, without regular expressions and wildcards", path.Path)
			}
			if path.PathType == v1alpha1.PathTypeImplementationSpecific {
				path.PathType = v1alpha1.PathTypePrefix
				if path.Path == "" {
					path.Path = "/"
				}
				c.warn(o, field+".pathType", "ImplementationSpecific is replaced by Prefix: compare which requests match %s", path.Path)
			}
			if path.Backend != nil && path.Backend.Service != nil {
				c.portNumber(o, field+".backend.service", path.Backend.Service)
			}
		}
	}
	if len(v.Annotations) > 0 {
		c.warn(o, "metadata.annotations", "annotations of an ingress controller have no effect on routes; use filters, timeouts or policies of "+
			"the Gateway's implementation")
	}
}

// portNumber replaces the name of a port by its number, which routes need.
func (c *converter) portNumber(o *object, field string, service *v1alpha1.VirtualIngressService) {
	if service.Port.Name == "" {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(c.services)) {
		typed := &corev1.Service{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(c.services[key].Object, typed) != nil ||
			typed.Name != service.Name && !selector.Matches(typed.Labels, service.MatchLabels) ||
			cmp.Or(typed.Namespace, c.namespace) != cmp.Or(service.Namespace, o.GetNamespace(), c.namespace) {
			continue
		}
		for _, p := range typed.Spec.Ports {
			if p.Name == service.Port.Name {
				service.Port = v1alpha1.VirtualIngressPort{Number: p.Port}
				return
			}
		}
	}
	c.warn(o, field+".port", "replace name %s by a number, or the API server rejects the object: no Service in the files has this port", service.Port.Name)
}
