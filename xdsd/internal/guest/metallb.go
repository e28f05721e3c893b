package guest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

const metallbGroup = "metallb.io"

// AddressFault returns why the Service, which must be without an address, has none. It never returns nil.
func (c *Cluster) AddressFault(ctx context.Context, w *Wanted, service *corev1.Service) *Fault {
	pools, err := c.listKind(ctx, kindPool)
	switch {
	case isMissing(err):
		return &Fault{v1alpha1.AppsIngressMetalLBMissing, fmt.Sprintf(
			"Service %s has no address, and the hosted cluster has no MetalLB (%s is not served): install it there, set metallb.install, or use source MirroredService or Static", w.Service, metallbGroup)}
	case apierrors.IsForbidden(err): // the kubeconfig's user need not have the right to list pools
		pools = nil
	case err != nil:
		return apiFault(err, "listing IPAddressPools")
	case len(pools) == 0:
		return &Fault{v1alpha1.AppsIngressPoolMissing, "the hosted cluster has no IPAddressPool: create one with addresses of the VLAN"}
	}
	name := ""
	if w.Apps.MetalLB != nil {
		name = w.Apps.MetalLB.AddressPoolName
	}
	if err == nil && name != "" && !slices.ContainsFunc(pools, func(p unstructured.Unstructured) bool { return p.GetName() == name }) {
		return &Fault{v1alpha1.AppsIngressPoolMissing, fmt.Sprintf("IPAddressPool %s does not exist in the hosted cluster: create it, or set metallb.addressPoolName to an existing pool: %s", name, poolNames(pools))}
	}
	warning := c.lastWarning(ctx, service)
	if strings.Contains(warning, "no available IPs") || exhausted(pools, name) {
		return &Fault{v1alpha1.AppsIngressPoolExhausted, fmt.Sprintf("no free address in %s: add addresses to the pool%s", describePools(pools, name), messageSuffix(warning))}
	}
	hint := "check that MetalLB's controller and speaker run"
	if class := ptr.Deref(service.Spec.LoadBalancerClass, ""); class != "" {
		hint = fmt.Sprintf("check that MetalLB runs with --lb-class=%s", class)
	} else if name == "" {
		hint = "check that an IPAddressPool with autoAssign exists"
	}
	return &Fault{v1alpha1.AppsIngressAddressNotAssigned, fmt.Sprintf("Service %s has no address yet: %s%s", w.Service, hint, messageSuffix(warning))}
}

// AnnouncementFault returns a Fault if MetalLB reports that no node announces the Service's address. It returns nil if
// a node announces it, or if MetalLB does not report announcements.
func (c *Cluster) AnnouncementFault(ctx context.Context, w *Wanted) *Fault {
	ours := client.MatchingLabels{"metallb.io/service-name": w.Service.Name, "metallb.io/service-namespace": w.Service.Namespace}
	reported := false
	for _, kind := range []schema.GroupVersionKind{kindServiceL2Status, kindServiceBGPStatus} {
		list, err := c.listKind(ctx, kind, ours)
		if err != nil {
			continue // not served by an older MetalLB, or no right to list
		}
		if len(list) > 0 {
			return nil
		}
		reported = true
	}
	if !reported {
		return nil
	}
	advertisement := "an L2Advertisement"
	if m := w.Apps.MetalLB; m != nil && m.L2AdvertisementName != "" {
		advertisement = "L2Advertisement " + m.L2AdvertisementName
	}
	return &Fault{v1alpha1.AppsIngressNotAnnounced, fmt.Sprintf(
		"no node announces the address of Service %s: %s must select the pool, and a speaker must run on a node with the VLAN", w.Service, advertisement)}
}

// isMissing reports whether an error means that an API is not served, or that an object does not exist.
func isMissing(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// exhausted reports whether the named pool, or every pool if name is empty, has no free address. MetalLB reports
// this since 0.15.
func exhausted(pools []unstructured.Unstructured, name string) bool {
	full := false
	for _, p := range pools {
		if name != "" && p.GetName() != name {
			continue
		}
		free := int64(0)
		known := false
		for _, field := range []string{"availableIPv4", "availableIPv6"} {
			n, found, err := unstructured.NestedInt64(p.Object, "status", field)
			known = known || found && err == nil
			free += n
		}
		if !known || free > 0 {
			return false
		}
		full = true
	}
	return full
}

func poolNames(pools []unstructured.Unstructured) string {
	list := make([]string, len(pools))
	for i, p := range pools {
		list[i] = p.GetName()
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func describePools(pools []unstructured.Unstructured, name string) string {
	if name != "" {
		return "IPAddressPool " + name
	}
	return "the IPAddressPools " + poolNames(pools)
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
