package ingress

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/selector"
)

// Policy is what happens where a VirtualIngress does not say.
type Policy struct {
	// OnMultiple says what to do when several Services have a backend's labels.
	OnMultiple v1alpha1.OnMultiple
	// OnNoMatch says what becomes of the Ingress when none has.
	OnNoMatch v1alpha1.OnNoMatch
	// Suffix is what the Ingress is named after the VirtualIngress's name.
	Suffix string
	// Aliases: backendMode Alias is served.
	Aliases bool
	// CrossNamespace: it is for Services of other namespaces that consent, too.
	CrossNamespace bool
	// SharedHosts: VirtualIngresses of several namespaces may have the same host.
	SharedHosts bool
	// Drop are keys of annotations and labels that the Ingress does not get, beside Tracking.
	Drop []string
}

// of is the policy for a VirtualIngress.
func (p Policy) of(v *v1alpha1.VirtualIngress) Policy {
	p.OnMultiple = cmp.Or(v.Spec.OnMultiple, p.OnMultiple)
	p.OnNoMatch = cmp.Or(v.Spec.OnNoMatch, p.OnNoMatch)
	if v.Spec.Suffix != nil {
		p.Suffix = *v.Spec.Suffix
	}
	return p
}

// resolution is what the sources of a VirtualIngress amount to.
type resolution struct {
	backends []*backend
	// remove: there is to be no Ingress.
	remove bool
	// claimed are the hosts that are those of VirtualIngresses of other namespaces.
	claimed []claimed
}

// backend is what a source amounts to.
type backend struct {
	source source
	// service is the Service that was found and has what is asked of it; nil for none.
	service *corev1.Service
	// inUse is its name, or that of the last one; empty for none yet.
	inUse string
	// alias is the name of the Service that stands for it; empty where it is named itself.
	alias           string
	reason, message string
}

// claimed is a host that is that of another VirtualIngress.
type claimed struct {
	host string
	by   types.NamespacedName
}

// name is what the Ingress calls the Service; empty while there is none.
func (b *backend) name() string {
	if b.alias != "" && b.inUse != "" {
		return b.alias
	}
	return b.inUse
}

// fault is what is wrong: with a host, or with the first backend where something is.
func (r *resolution) fault() (reason, message string) {
	if len(r.claimed) > 0 {
		c := r.claimed[0]
		return v1alpha1.ReasonHostClaimed, fmt.Sprintf("host %s is that of VirtualIngress %s of another namespace, which is older", c.host, c.by)
	}
	for _, b := range r.backends {
		if b.reason != "" {
			return b.reason, b.message
		}
	}
	return "", ""
}

// complete reports whether each backend has a Service to be named.
func (r *resolution) complete() bool {
	return !slices.ContainsFunc(r.backends, func(b *backend) bool { return b.name() == "" })
}

// resolve finds the Services of a VirtualIngress. Those that its status has stay in use where
// none is found.
func resolve(v *v1alpha1.VirtualIngress, p Policy, d *directory) *resolution {
	p = p.of(v)
	r := &resolution{}
	for _, s := range sourcesOf(v) {
		b := &backend{source: s}
		if v.Spec.BackendMode == v1alpha1.BackendModeAlias {
			b.alias = aliasName(v, s, p.Suffix)
		}
		last := lastService(v, s)
		b.service, b.reason, b.message = look(v, s, p, d, last)
		switch {
		case b.service != nil:
			b.inUse = b.service.Name
		case b.reason == v1alpha1.ReasonNoMatchingService && p.OnNoMatch == v1alpha1.OnNoMatchDelete:
			r.remove = true
		case b.reason != v1alpha1.ReasonConsentMissing && b.reason != v1alpha1.ReasonUnsupported:
			b.inUse = last
		}
		r.backends = append(r.backends, b)
	}
	if !p.SharedHosts {
		r.claimed = d.claimedOf(keyOf(v))
	}
	return r
}

// lastService is the Service that a source had by the status; empty for none.
func lastService(v *v1alpha1.VirtualIngress, s source) string {
	for _, b := range v.Status.Backends {
		if b.Selector == s.text() && cmp.Or(b.Namespace, v.Namespace) == s.namespace {
			return b.Service
		}
	}
	return ""
}

// look finds the Service of a source, and says what is wrong.
func look(v *v1alpha1.VirtualIngress, s source, p Policy, d *directory, last string) (found *corev1.Service, reason, message string) {
	alias := v.Spec.BackendMode == v1alpha1.BackendModeAlias
	switch {
	case alias && !p.Aliases:
		return nil, v1alpha1.ReasonUnsupported, "backendMode Alias is not permitted: the controller runs with --aliases=false"
	case s.namespace != v.Namespace && !alias:
		return nil, v1alpha1.ReasonUnsupported, "a Service of namespace " + s.namespace + " needs backendMode Alias"
	case s.namespace != v.Namespace && !p.CrossNamespace:
		return nil, v1alpha1.ReasonUnsupported, "Services of other namespaces are not permitted: the controller runs without --cross-namespace"
	case s.namespace != v.Namespace && !d.allows(s.namespace, v.Namespace):
		return nil, v1alpha1.ReasonConsentMissing, fmt.Sprintf("namespace %s does not let %s have its Services: whoever may, annotates it with %s: %s",
			s.namespace, v.Namespace, v1alpha1.AnnotationAllowAliases, v.Namespace)
	}
	all := d.find(s)
	if s.name != "" {
		if len(all) == 0 {
			return nil, v1alpha1.ReasonNoMatchingService, fmt.Sprintf("there is no Service %s in %s", s.name, s.namespace)
		}
		found = all[0]
	} else {
		choice := selector.Choose(all, s.namespace, s.labels, p.OnMultiple, last)
		found, message = choice.Service, choice.Message
		switch choice.Fault {
		case selector.NoMatch:
			return nil, v1alpha1.ReasonNoMatchingService, message
		case selector.Several:
			reason = v1alpha1.ReasonMultipleMatches
		case selector.None:
		}
	}
	if found == nil {
		return nil, reason, message
	}
	if alias && found.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, v1alpha1.ReasonUnsupported, "Service " + found.Name + " is an ExternalName, which is a name and has no endpoints: an alias of it could lead anywhere"
	}
	if missing := missingPort(v, s, found); missing != "" {
		return nil, v1alpha1.ReasonPortNotFound, missing
	}
	return found, reason, message
}

// missingPort names a port that is asked of a source and that its Service does not have.
func missingPort(v *v1alpha1.VirtualIngress, s source, service *corev1.Service) (message string) {
	eachBackend(v, func(b *v1alpha1.VirtualIngressBackend) {
		of, ok := sourceOf(v, b)
		if !ok || message != "" || of.key() != s.key() || slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
			return samePort(b.Service.Port, p)
		}) {
			return
		}
		have := make([]string, len(service.Spec.Ports))
		for i, p := range service.Spec.Ports {
			have[i] = strings.TrimSpace(fmt.Sprintf("%d %s", p.Port, p.Name))
		}
		message = fmt.Sprintf("Service %s has no port %s: it has %q", service.Name, cmp.Or(b.Service.Port.Name, strconv.Itoa(int(b.Service.Port.Number))), have)
	})
	return message
}

func samePort(want v1alpha1.VirtualIngressPort, has corev1.ServicePort) bool {
	if want.Name != "" {
		return want.Name == has.Name
	}
	return want.Number == has.Port
}
