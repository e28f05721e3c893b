package ingress

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/selector"
)

// Policy has the defaults of VirtualIngresses, and the features that they may use.
type Policy struct {
	// OnMultiple is the default of spec.onMultiple.
	OnMultiple v1alpha1.OnMultiple
	// OnNoMatch is the default of spec.onNoMatch.
	OnNoMatch v1alpha1.OnNoMatch
	// Suffix is the default of spec.suffix.
	Suffix string
	// Aliases permits backendMode Alias.
	Aliases bool
	// CrossNamespace permits aliases of Services in other namespaces that consent.
	CrossNamespace bool
	// SharedHosts permits VirtualIngresses in several namespaces to have the same host. Otherwise the oldest one holds
	// it.
	SharedHosts bool
	// Drop lists annotations and labels that are not copied to generated objects, in addition to Tracking and in its syntax.
	Drop []string
}

// forObject returns the policy of a VirtualIngress.
func (p Policy) forObject(v *v1alpha1.VirtualIngress) Policy {
	p.OnMultiple = cmp.Or(v.Spec.OnMultiple, p.OnMultiple)
	p.OnNoMatch = cmp.Or(v.Spec.OnNoMatch, p.OnNoMatch)
	if v.Spec.Suffix != nil {
		p.Suffix = *v.Spec.Suffix
	}
	return p
}

// resolution is the result of resolving the sources of a VirtualIngress.
type resolution struct {
	backends []*backend
	// remove reports that the generated objects must be deleted.
	remove bool
	// conflicts are the hosts that VirtualIngresses in other namespaces hold.
	conflicts []hostConflict
}

// backend is the resolution of a source.
type backend struct {
	source source
	// service is the selected Service if it is usable, otherwise nil.
	service *corev1.Service
	// inUse is the name of the selected Service, else of the previously selected one; empty without one.
	inUse string
	// alias is the name of the alias; empty without backendMode Alias.
	alias           string
	reason, message string
}

// name returns the name of the Service in the generated objects; empty without one.
func (b *backend) name() string {
	if b.alias != "" && b.inUse != "" {
		return b.alias
	}
	return b.inUse
}

// fault returns the first fault: a host conflict, or the fault of the first backend with one.
func (r *resolution) fault() (reason, message string) {
	if len(r.conflicts) > 0 {
		c := r.conflicts[0]
		return v1alpha1.ReasonHostClaimed, fmt.Sprintf("host %s belongs to VirtualIngress %s, which requested it first", c.host, c.by)
	}
	for _, b := range r.backends {
		if b.reason != "" {
			return b.reason, b.message
		}
	}
	return "", ""
}

// complete reports whether each backend has a Service.
func (r *resolution) complete() bool {
	return !slices.ContainsFunc(r.backends, func(b *backend) bool { return b.name() == "" })
}

// resolve resolves the sources of a VirtualIngress. If no Service is found, the one in the status stays in use, as
// far as the policy permits. It returns an error only if the cache cannot be read.
func resolve(ctx context.Context, c client.Reader, v *v1alpha1.VirtualIngress, p Policy) (*resolution, error) {
	p = p.forObject(v)
	r := &resolution{}
	for _, s := range sourcesOf(v) {
		b := &backend{source: s}
		if v.Spec.BackendMode == v1alpha1.BackendModeAlias {
			b.alias = aliasName(v, s, p.Suffix)
		}
		last := lastService(v, s)
		if err := b.findService(ctx, c, v, p, last); err != nil {
			return nil, fmt.Errorf("finding the Service of %s: %w", s.text(), err)
		}
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
	if v.Spec.RequireEndpoints {
		if err := r.requireEndpoints(ctx, c, v); err != nil {
			return nil, err
		}
	}
	if p.SharedHosts {
		return r, nil
	}
	var err error
	r.conflicts, err = hostConflicts(ctx, c, v)
	return r, err
}

// lastService returns the Service of a source in the status; empty without one.
func lastService(v *v1alpha1.VirtualIngress, s source) string {
	for _, b := range v.Status.Backends {
		if b.Selector == s.text() && cmp.Or(b.Namespace, v.Namespace) == s.namespace {
			return b.Service
		}
	}
	return ""
}

// findService sets the Service that the source selects, and the reason and message of a fault.
func (b *backend) findService(ctx context.Context, c client.Reader, v *v1alpha1.VirtualIngress, p Policy, last string) error {
	s := b.source
	reason, message, err := checkPermitted(ctx, c, v, s, p)
	if err != nil || reason != "" {
		b.reason, b.message = reason, message
		return err
	}
	found, err := servicesOf(ctx, c, s)
	if err != nil {
		return err
	}
	var service *corev1.Service
	switch {
	case s.name == "":
		choice := selector.Choose(found, s.namespace, s.labels, p.OnMultiple, last)
		service, b.message = choice.Service, choice.Message
		b.reason = map[selector.Fault]string{selector.NoMatch: v1alpha1.ReasonNoMatchingService, selector.Several: v1alpha1.ReasonMultipleMatches}[choice.Fault]
	case len(found) > 0:
		service = found[0]
	default:
		b.reason, b.message = v1alpha1.ReasonNoMatchingService, fmt.Sprintf("no Service in namespace %s has the name %s", s.namespace, s.name)
	}
	if service == nil {
		return nil
	}
	if b.alias != "" && service.Spec.Type == corev1.ServiceTypeExternalName {
		b.reason = v1alpha1.ReasonUnsupported
		b.message = "Service " + service.Name + " has type ExternalName and no endpoints: an alias of it could point anywhere"
	} else if missing := missingPort(v, s, service); missing != "" {
		b.reason, b.message = v1alpha1.ReasonPortNotFound, missing
	} else {
		b.service = service
	}
	return nil
}

// checkPermitted returns the reason and message why a source is not permitted; empty if it is.
func checkPermitted(ctx context.Context, c client.Reader, v *v1alpha1.VirtualIngress, s source, p Policy) (reason, message string, err error) {
	alias, foreign := v.Spec.BackendMode == v1alpha1.BackendModeAlias, s.namespace != v.Namespace
	switch {
	case alias && !p.Aliases:
		return v1alpha1.ReasonUnsupported, "backendMode Alias is not permitted: the controller runs with --aliases=false", nil
	case v.Spec.RequireEndpoints && !p.Aliases:
		return v1alpha1.ReasonUnsupported, "requireEndpoints is not permitted: the controller runs with --aliases=false, and does not read EndpointSlices", nil
	case !foreign:
		return "", "", nil
	case !alias:
		return v1alpha1.ReasonUnsupported, "a backend in another namespace, " + s.namespace + ", requires backendMode Alias", nil
	case !p.CrossNamespace:
		return v1alpha1.ReasonUnsupported, "Services in other namespaces are not permitted: the controller runs without --cross-namespace", nil
	}
	namespace := namespaceMetadata()
	err = c.Get(ctx, client.ObjectKey{Name: s.namespace}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return "", "", err
	}
	for name := range strings.SplitSeq(namespace.Annotations[v1alpha1.AnnotationAllowAliases], ",") {
		if name = strings.TrimSpace(name); name == "*" || name == v.Namespace {
			return "", "", nil
		}
	}
	return v1alpha1.ReasonConsentMissing,
		fmt.Sprintf("namespace %[1]s does not permit aliases of its Services in namespace %[2]s; add %[2]s to the annotation %[3]s of namespace %[1]s",
			s.namespace, v.Namespace, v1alpha1.AnnotationAllowAliases), nil
}

// namespaceMetadata returns an empty Namespace; only its metadata is cached.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}

// servicesOf returns the Services that a source selects, in no particular order, without generated ones and those that
// are being deleted. They are not copied, and must not be modified.
func servicesOf(ctx context.Context, c client.Reader, s source) ([]*corev1.Service, error) {
	list := &corev1.ServiceList{}
	err := c.List(ctx, list, client.MatchingFields{referenceIndex: s.reference()}, client.MatchingLabels(s.labels), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var found []*corev1.Service
	for i := range list.Items {
		if service := &list.Items[i]; service.DeletionTimestamp == nil && !isGenerated(service) {
			found = append(found, service)
		}
	}
	return found, nil
}

// missingPort returns a message if a backend with this source uses a port that the Service does not have.
func missingPort(v *v1alpha1.VirtualIngress, s source, service *corev1.Service) (message string) {
	eachService(v, func(want *v1alpha1.VirtualIngressService) {
		of, ok := sourceOf(v, want)
		if !ok || message != "" || of.key() != s.key() || slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
			return samePort(want.Port, p)
		}) {
			return
		}
		have := make([]string, len(service.Spec.Ports))
		for i, p := range service.Spec.Ports {
			have[i] = strings.TrimSpace(fmt.Sprintf("%d %s", p.Port, p.Name))
		}
		message = fmt.Sprintf("Service %s lacks port %s; available: %q", service.Name, cmp.Or(want.Port.Name, strconv.Itoa(int(want.Port.Number))), have)
	})
	return message
}

func samePort(want v1alpha1.VirtualIngressPort, has corev1.ServicePort) bool {
	if want.Name != "" {
		return want.Name == has.Name
	}
	return want.Number == has.Port
}
