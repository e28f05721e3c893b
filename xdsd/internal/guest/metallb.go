package guest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// AddressFault returns why the Service, which must be without an address, has none. It never returns nil.
func (c *Cluster) AddressFault(ctx context.Context, w *Wanted, service *corev1.Service) *Fault {
	name, addresses := "", "addresses of the VLAN"
	if m := w.Apps.MetalLB; m != nil {
		name = m.AddressPoolName
		if ranges, err := m.IPAddressPoolRange.Elements(); err == nil && len(ranges) > 0 {
			addresses = strings.Join(ranges, ", ")
		}
	}
	pools, err := c.list(ctx, kindPool)
	switch {
	case apierrors.IsNotFound(err):
		return &Fault{v1alpha1.AppsIngressMetalLBMissing, fmt.Sprintf(
			"Service %s lacks an address, and MetalLB is not installed in the hosted cluster (%s is not served); install it there, set metallb.install, or use source "+
				"MirroredService or Static", w.Service, metallbGroup)}
	case apierrors.IsForbidden(err): // the kubeconfig's user need not have permission to list pools
		pools = nil
	case err != nil:
		return apiFault(err)
	case len(pools) == 0:
		return &Fault{v1alpha1.AppsIngressPoolMissing, fmt.Sprintf("the hosted cluster lacks an IPAddressPool; create %s with %s", cmp.Or(name, "one"), addresses)}
	}
	if existing := names(pools); err == nil && name != "" {
		if pools = named(pools, name); len(pools) == 0 {
			return &Fault{v1alpha1.AppsIngressPoolMissing, fmt.Sprintf(
				"IPAddressPool %s does not exist in the hosted cluster; create it, or set metallb.addressPoolName to an existing pool: %s", name, existing)}
		}
	}
	warning := c.lastWarning(ctx, service)
	if strings.Contains(warning, "no available IPs") || exhausted(pools) {
		return &Fault{v1alpha1.AppsIngressPoolExhausted,
			fmt.Sprintf("no free address in IPAddressPool %s; add addresses to the pool%s", cmp.Or(name, names(pools)), messageSuffix(warning))}
	}
	hint := "check that MetalLB's controller and speaker run"
	if class := ptr.Deref(service.Spec.LoadBalancerClass, ""); class != "" {
		hint = fmt.Sprintf("check that MetalLB runs with --lb-class=%s", class)
	} else if name == "" {
		hint = "check that an IPAddressPool with autoAssign exists"
	}
	return &Fault{v1alpha1.AppsIngressAddressNotAssigned, fmt.Sprintf("Service %s is waiting for an address: %s%s", w.Service, hint, messageSuffix(warning))}
}

// AnnouncementFault returns a Fault if MetalLB reports that no node announces the Service's address, or if the
// L2Advertisement that the Infra names cannot announce it, and nil otherwise. If a node announces the address
// although the named L2Advertisement does not, the Fault is nil, and warning describes the L2Advertisement's error.
func (c *Cluster) AnnouncementFault(ctx context.Context, w *Wanted, service *corev1.Service) (fault *Fault, warning string) {
	announced, reported := c.isServiceAnnounced(ctx, w)
	problem := c.advertisementProblem(ctx, w, service)
	switch {
	case announced:
		return nil, problem
	case problem != "":
		return &Fault{v1alpha1.AppsIngressAdvertisementMissing, fmt.Sprintf("the address of Service %s is not announced: %s", w.Service, problem)}, ""
	case !reported:
		return nil, ""
	}
	advertisement := "an L2Advertisement"
	if name := w.advertisementName(); name != "" {
		advertisement = "L2Advertisement " + name
	}
	return &Fault{v1alpha1.AppsIngressNotAnnounced, fmt.Sprintf(
		"no node announces the address of Service %s: %s must select the pool, and a speaker must run on a node with the VLAN", w.Service, advertisement)}, ""
}

// isServiceAnnounced reports whether a node announces the Service's address. reported is false if MetalLB does not report
// announcements.
func (c *Cluster) isServiceAnnounced(ctx context.Context, w *Wanted) (announced, reported bool) {
	ofService := client.MatchingLabels{"metallb.io/service-name": w.Service.Name, "metallb.io/service-namespace": w.Service.Namespace}
	for _, kind := range []schema.GroupVersionKind{kindServiceL2Status, kindServiceBGPStatus} {
		list, err := c.list(ctx, kind, ofService)
		if err != nil {
			continue // not served by an older MetalLB, or no permission to list
		}
		if len(list) > 0 {
			return true, true
		}
		reported = true
	}
	return false, reported
}

// allocatedFrom are MetalLB's annotations with the pool of a Service's address: the current one, and the one of
// releases up to 0.14.
var allocatedFrom = []string{"metallb.io/ip-allocated-from-pool", "metallb.universe.tf/ip-allocated-from-pool"}

// advertisementProblem returns why the L2Advertisement that the Infra names does not announce the Service's address: it does
// not exist, or does not select the pool. It returns "" if it does, if the Infra names none, and if the objects cannot be
// listed, for example because the kubeconfig's user lacks the right.
func (c *Cluster) advertisementProblem(ctx context.Context, w *Wanted, service *corev1.Service) string {
	name := w.advertisementName()
	if name == "" {
		return ""
	}
	advertisements, err := c.list(ctx, kindL2Advertisement)
	if err != nil {
		return ""
	}
	existing := names(advertisements)
	if advertisements = named(advertisements, name); len(advertisements) == 0 {
		problem := fmt.Sprintf("L2Advertisement %s does not exist in the hosted cluster; create it", name)
		if existing != "" {
			problem += ", or set metallb.l2AdvertisementName to an existing one: " + existing
		}
		return problem
	}
	pool := w.Apps.MetalLB.AddressPoolName
	for _, key := range allocatedFrom {
		pool = cmp.Or(pool, service.Annotations[key])
	}
	pools, err := c.list(ctx, kindPool)
	if pools = named(pools, pool); err != nil || len(pools) == 0 {
		return "" // the pool is unknown
	}
	for _, p := range pools {
		for _, a := range advertisements {
			if a.GetNamespace() == p.GetNamespace() && announces(&a, &p) { // MetalLB reads the objects of one namespace
				return ""
			}
		}
	}
	return fmt.Sprintf("%s does not select %s; add the pool to its ipAddressPools, or set metallb.l2AdvertisementName to one that selects it",
		describe(&advertisements[0]), describe(&pools[0]))
}

// announces reports whether an advertisement covers a pool: by name, by labels, or because it restricts no pools.
func announces(advertisement, pool *unstructured.Unstructured) bool {
	a := struct {
		Spec struct {
			Names     []string               `json:"ipAddressPools"`
			Selectors []metav1.LabelSelector `json:"ipAddressPoolSelectors"`
		} `json:"spec"`
	}{}
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(advertisement.Object, &a) // the CRD defines the types
	selects := func(s metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		return err == nil && selector.Matches(labels.Set(pool.GetLabels()))
	}
	return len(a.Spec.Names) == 0 && len(a.Spec.Selectors) == 0 || slices.Contains(a.Spec.Names, pool.GetName()) ||
		slices.ContainsFunc(a.Spec.Selectors, selects)
}

// exhausted reports whether no pool has a free address. MetalLB reports this since 0.15.
func exhausted(pools []unstructured.Unstructured) bool {
	for _, p := range pools {
		free4, known4, _ := unstructured.NestedInt64(p.Object, "status", "availableIPv4")
		free6, known6, _ := unstructured.NestedInt64(p.Object, "status", "availableIPv6")
		if !known4 && !known6 || free4+free6 > 0 {
			return false
		}
	}
	return len(pools) > 0
}

// named returns the objects with a name, in any namespace.
func named(objects []unstructured.Unstructured, name string) []unstructured.Unstructured {
	return slices.DeleteFunc(objects, func(o unstructured.Unstructured) bool { return o.GetName() != name })
}

func names(objects []unstructured.Unstructured) string {
	list := make([]string, len(objects))
	for i, o := range objects {
		list[i] = o.GetName()
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func messageSuffix(message string) string {
	if message == "" {
		return ""
	}
	return fmt.Sprintf(" (message: %q)", message)
}

// lastWarning returns the message of the latest warning Event about the Service.
func (c *Cluster) lastWarning(ctx context.Context, service *corev1.Service) string {
	events := &corev1.EventList{}
	err := c.client.List(ctx, events, client.InNamespace(service.Namespace), client.MatchingFields{
		"involvedObject.kind": "Service", "involvedObject.name": service.Name, "type": corev1.EventTypeWarning,
	})
	if err != nil {
		return "" // the warning is additional information only
	}
	message, when := "", metav1.Time{}
	for _, e := range events.Items {
		if e.InvolvedObject.UID == service.UID && !e.LastTimestamp.Before(&when) {
			message, when = e.Message, e.LastTimestamp
		}
	}
	return message
}
