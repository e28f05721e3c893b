package render

import (
	"net/netip"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Addresses maps each VLAN address of an Infra's enabled components to the names of the StatefulSets that use it, given the
// present ones: one name, or for a floating address the names of all proxy replicas. It omits components with an invalid
// replica address, and invalid floating addresses.
func Addresses(infra *v1alpha1.Infra, present Sets) map[netip.Addr][]string {
	in := &Input{Infra: infra, Sets: present}
	all := map[netip.Addr][]string{}
	components := &infra.Spec.InfraComponents
	for _, c := range []struct {
		enabled   bool
		name      string
		instances []v1alpha1.Instance
	}{
		{components.DHCP.IsEnabled(), v1alpha1.ComponentDHCP, components.DHCP.EffectiveInstances()},
		{components.DNS.IsEnabled(), v1alpha1.ComponentDNS, components.DNS.EffectiveInstances()},
		{components.Proxy.IsEnabled(), v1alpha1.ComponentProxy, components.Proxy.EffectiveInstances()},
	} {
		if !c.enabled {
			continue
		}
		instances, err := in.instances(c.name, c.instances)
		if err != nil {
			continue
		}
		var names []string
		for _, i := range instances {
			names = append(names, i.name)
			for _, address := range i.addresses {
				all[address] = []string{i.name}
			}
		}
		if c.name != v1alpha1.ComponentProxy || !in.hasFloatingAddress() {
			continue
		}
		for _, ip := range components.Proxy.ServerIPs() {
			if address, err := v1alpha1.ParseAddress(string(ip)); err == nil {
				all[address] = names
			}
		}
	}
	return all
}
