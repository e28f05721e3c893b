package ingress

import (
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/selector"
)

// source selects a Service for a VirtualIngress: by labels, or by name in another namespace.
type source struct {
	namespace string
	name      string            // empty if labels are set
	labels    map[string]string // nil if name is set
}

// text returns the labels or the name.
func (s source) text() string {
	if s.name != "" {
		return s.name
	}
	return selector.Text(s.labels)
}

// key identifies a source. Neither names nor labels contain spaces.
func (s source) key() string { return s.namespace + " " + s.text() }

// matches reports whether the source selects a Service, by its labels or name.
func (s source) matches(service client.Object) bool {
	if s.namespace != service.GetNamespace() {
		return false
	}
	return s.name == service.GetName() || selector.Matches(service.GetLabels(), s.labels)
}

// labelTenantName is the label with the name that a mirrored Service has in its hosted cluster.
const labelTenantName = "cluster.x-k8s.io/tenant-service-name"

// reference returns the reference by which the source is found and finds Services. Of several labels it is that with a
// mirrored Service's name, which few other Services have, or else the first by key.
func (s source) reference() string {
	if s.name != "" {
		return reference("Service", s.namespace, s.name)
	}
	key := labelTenantName
	if _, ok := s.labels[key]; !ok {
		key = slices.Min(slices.Collect(maps.Keys(s.labels)))
	}
	return reference("label", s.namespace, key+"="+s.labels[key])
}

// sourceOf returns the source of a backend, and false if the backend is copied unchanged: it has no Service, or
// names one of its own namespace.
func sourceOf(v *v1alpha1.VirtualIngress, b *v1alpha1.VirtualIngressBackend) (source, bool) {
	in := b.Service
	if in == nil {
		return source{}, false
	}
	s := source{namespace: in.Namespace, name: in.Name}
	if s.namespace == "" {
		s.namespace = v.Namespace
	}
	if len(in.MatchLabels) > 0 {
		s.name, s.labels = "", make(map[string]string, len(in.MatchLabels))
		for key, value := range in.MatchLabels {
			s.labels[key] = string(value)
		}
	}
	return s, s.labels != nil || s.namespace != v.Namespace
}

// eachBackend calls do for every backend, in the order of the spec.
func eachBackend(v *v1alpha1.VirtualIngress, do func(*v1alpha1.VirtualIngressBackend)) {
	if v.Spec.DefaultBackend != nil {
		do(v.Spec.DefaultBackend)
	}
	for i := range v.Spec.Rules {
		if http := v.Spec.Rules[i].HTTP; http != nil {
			for j := range http.Paths {
				do(&http.Paths[j].Backend)
			}
		}
	}
}

// sourcesOf returns the unique sources of a VirtualIngress, in the order of the spec.
func sourcesOf(v *v1alpha1.VirtualIngress) []source {
	var list []source
	seen := map[string]bool{}
	eachBackend(v, func(b *v1alpha1.VirtualIngressBackend) {
		if s, ok := sourceOf(v, b); ok && !seen[s.key()] {
			seen[s.key()] = true
			list = append(list, s)
		}
	})
	return list
}
