package setup

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/densityops/oooi/api/v1alpha1"
)

// invalidResources returns an error for each request that exceeds its limit. The API server would name the workload,
// not the field.
func (k *Known) invalidResources() []error {
	var errs []error
	check := func(field string, given *corev1.ResourceRequirements) {
		if given == nil {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(given.Requests)) {
			request := given.Requests[name]
			if limit, limited := given.Limits[name]; limited && request.Cmp(limit) > 0 {
				errs = append(errs, fmt.Errorf("%s.requests.%s: %s is more than the limit, %s; lower the request, or raise limits.%s", field, name, request.String(), limit.String(), name))
			}
		}
	}
	if !k.standalone() {
		components := &k.Infra.Spec.InfraComponents
		if dhcp := components.DHCP; dhcp != nil {
			check("spec.infraComponents.dhcp.resources", dhcp.Resources)
		}
		if dns := components.DNS; dns != nil {
			check("spec.infraComponents.dns.resources", dns.Resources)
		}
		if proxy := components.Proxy; proxy != nil {
			check("spec.infraComponents.proxy.resources", proxy.Resources)
			check("spec.infraComponents.proxy.xdsdResources", proxy.XDSDResources)
		}
		check(controlField, controlResources(k.Infra))
	}
	if p := k.ProxyServer; p != nil {
		where := fmt.Sprintf("ProxyServer %s/%s, spec.", p.Namespace, p.Name)
		check(where+"resources", p.Spec.Resources)
		check(where+"xdsdResources", p.Spec.XDSDResources)
	}
	return errs
}

const controlField = "spec.infraComponents.control.resources"

// controlResources returns the resources that an Infra sets for control; nil if it sets none.
func controlResources(infra *v1alpha1.Infra) *corev1.ResourceRequirements {
	if control := infra.Spec.InfraComponents.Control; control != nil {
		return control.Resources
	}
	return nil
}

// controlResources returns the resources of control: those that the Infra sets, else those of another one, else nil. It
// returns an error if another Infra sets others, because each setup would replace control's pods.
func (k *Known) controlResources() (*corev1.ResourceRequirements, error) {
	own := controlResources(k.Infra)
	var of string // the Infra of found
	var found *corev1.ResourceRequirements
	for _, i := range k.Objects.Infras {
		given := controlResources(i)
		if given == nil || keyOf(i) == keyOf(k.Infra) {
			continue
		}
		if own != nil && !equality.Semantic.DeepEqual(own, given) {
			return nil, fmt.Errorf("%s: Infra %s sets others for control, which all Infras share; set the same in both, or remove the field of one of them", controlField, keyOf(i))
		}
		if found == nil || keyOf(i) < of {
			of, found = keyOf(i), given
		}
	}
	if own != nil {
		return own, nil
	}
	return found, nil
}
