package guest

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// defaultPoolName is the name of the IPAddressPool if the Infra sets none.
const defaultPoolName = "oooi"

// Kinds of MetalLB.
var (
	kindPool             = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "IPAddressPool"}
	kindL2Advertisement  = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "L2Advertisement"}
	kindBGPAdvertisement = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "BGPAdvertisement"}
	kindServiceL2Status  = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "ServiceL2Status"}
	kindServiceBGPStatus = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "ServiceBGPStatus"}
)

// ensurePool applies the pool of the apps address and its advertisement, in the namespace of MetalLB.
func (c *Cluster) ensurePool(ctx context.Context, w *Wanted, namespace string) *Fault {
	m := w.Apps.MetalLB
	pools, err := c.listKind(ctx, kindPool, client.InNamespace(namespace))
	if err != nil {
		return installFault(err, "listing IPAddressPools")
	}
	name := cmp.Or(m.AddressPoolName, defaultPoolName)
	exists := slices.ContainsFunc(pools, func(p unstructured.Unstructured) bool { return p.GetName() == name })
	addresses, err := poolAddresses(m.IPAddressPoolRange)
	switch {
	case err != nil:
		return installFailed("metallb.ipAddressPoolRange: %v", err)
	case len(addresses) == 0 && exists:
		return c.ensureAdvertisement(ctx, w, pools, namespace, name)
	case len(addresses) == 0 && m.AddressPoolName == "" && len(pools) > 0:
		return nil // MetalLB chooses an existing pool, whose owner also announces it
	case len(addresses) == 0:
		return installFailed("IPAddressPool %s/%s does not exist, and its addresses are unknown; set metallb.ipAddressPoolRange, or create the pool", namespace, name)
	}
	pool := desired(w, kindPool, namespace, name, map[string]any{"addresses": addresses})
	if _, fault := c.ensure(ctx, w, pool); fault != nil {
		return fault
	}
	return c.ensureAdvertisement(ctx, w, append(pools, *pool), namespace, name)
}

// poolAddresses returns ranges in the format of MetalLB, which has no single addresses.
func poolAddresses(ranges *v1alpha1.AddressRanges) ([]any, error) {
	elements, err := ranges.Elements()
	if err != nil {
		return nil, err
	}
	var list []any
	for _, element := range elements {
		r, err := v1alpha1.ParseAddressRange(element)
		if err != nil {
			return nil, err
		}
		switch {
		case strings.Contains(element, "/"):
			list = append(list, netip.PrefixFrom(r.First, netip.MustParsePrefix(element).Bits()).String())
		case r.First == r.Last:
			list = append(list, netip.PrefixFrom(r.First, r.First.BitLen()).String())
		default:
			list = append(list, r.String())
		}
	}
	return list, nil
}

// ensureAdvertisement applies the L2Advertisement of a pool. If the Infra sets no name, an advertisement of any
// kind by another client is sufficient.
func (c *Cluster) ensureAdvertisement(ctx context.Context, w *Wanted, pools []unstructured.Unstructured, namespace, pool string) *Fault {
	name := w.Apps.MetalLB.L2AdvertisementName
	if name == "" {
		name = pool
		i := slices.IndexFunc(pools, func(p unstructured.Unstructured) bool { return p.GetName() == pool })
		announced, err := c.isAnnounced(ctx, &pools[i])
		if err != nil {
			return installFault(err, "finding the advertisement of IPAddressPool "+namespace+"/"+pool)
		}
		if announced {
			return nil
		}
	}
	_, fault := c.ensure(ctx, w, desired(w, kindL2Advertisement, namespace, name, map[string]any{"ipAddressPools": []any{pool}}))
	return fault
}

// isAnnounced reports whether an advertisement of another client covers a pool.
func (c *Cluster) isAnnounced(ctx context.Context, pool *unstructured.Unstructured) (bool, error) {
	for _, kind := range []schema.GroupVersionKind{kindL2Advertisement, kindBGPAdvertisement} {
		list, err := c.listKind(ctx, kind, client.InNamespace(pool.GetNamespace()))
		if err != nil {
			return false, err
		}
		for _, a := range list {
			if isOurs(&a) {
				continue
			}
			announces, err := announces(&a, pool)
			if err != nil {
				return false, fmt.Errorf("%s: %w", describe(&a), err)
			}
			if announces {
				return true, nil
			}
		}
	}
	return false, nil
}

// announces reports whether an advertisement covers a pool: by name, by labels, or because it restricts no pools.
func announces(advertisement, pool *unstructured.Unstructured) (bool, error) {
	a := struct {
		Spec struct {
			Names     []string               `json:"ipAddressPools"`
			Selectors []metav1.LabelSelector `json:"ipAddressPoolSelectors"`
		} `json:"spec"`
	}{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(advertisement.Object, &a); err != nil {
		return false, fmt.Errorf("reading the pools that it advertises: %w", err)
	}
	if len(a.Spec.Names) == 0 && len(a.Spec.Selectors) == 0 || slices.Contains(a.Spec.Names, pool.GetName()) {
		return true, nil
	}
	for _, s := range a.Spec.Selectors {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			return false, fmt.Errorf("reading the pools that it advertises: %w", err)
		}
		if selector.Matches(labels.Set(pool.GetLabels())) {
			return true, nil
		}
	}
	return false, nil
}
