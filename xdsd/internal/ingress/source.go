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

// sourceOf returns the source of a backend's Service, and false if the backend is copied unchanged, because it names
// a Service in the same namespace.
func sourceOf(v *v1alpha1.VirtualIngress, in *v1alpha1.VirtualIngressService) (source, bool) {
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

// share is a Service and its share of the requests of a path.
type share struct {
	service *v1alpha1.VirtualIngressService
	weight  int32
}

// sharesOf returns the Services of each path, of each host with TLS, and of the default backend, in the order of the spec.
func sharesOf(v *v1alpha1.VirtualIngress) [][]share {
	var all [][]share
	add := func(single *v1alpha1.VirtualIngressBackend, several []v1alpha1.VirtualIngressWeightedBackend) {
		var shares []share
		if single != nil && single.Service != nil {
			shares = append(shares, share{single.Service, 1})
		}
		for i := range several {
			shares = append(shares, share{&several[i].Service, weightOf(&several[i])})
		}
		all = append(all, shares)
	}
	add(v.Spec.DefaultBackend, nil)
	for i := range v.Spec.Rules {
		if http := v.Spec.Rules[i].HTTP; http != nil {
			for j := range http.Paths {
				add(http.Paths[j].Backend, http.Paths[j].Backends)
			}
		}
		if tls := v.Spec.Rules[i].TLS; tls != nil {
			add(nil, tls.Backends)
		}
	}
	return all
}

// weightOf returns the weight of a backend, or the API's default.
func weightOf(b *v1alpha1.VirtualIngressWeightedBackend) int32 {
	if b.Weight == nil {
		return 1
	}
	return *b.Weight
}

// eachService calls do for the Service of every backend, in the order of the spec.
func eachService(v *v1alpha1.VirtualIngress, do func(*v1alpha1.VirtualIngressService)) {
	for _, shares := range sharesOf(v) {
		for _, s := range shares {
			do(s.service)
		}
	}
}

// sourcesOf returns the unique sources of a VirtualIngress, in the order of the spec.
func sourcesOf(v *v1alpha1.VirtualIngress) []source {
	var list []source
	seen := map[string]bool{}
	eachService(v, func(service *v1alpha1.VirtualIngressService) {
		if s, ok := sourceOf(v, service); ok && !seen[s.key()] {
			seen[s.key()] = true
			list = append(list, s)
		}
	})
	return list
}
