package verify

import (
	"fmt"
	"net/netip"

	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/registry"
)

// registryPath is a path at which every registry responds, often with 401. Source: OCI distribution
// specification, "Determining Support".
const registryPath = "/v2/"

// addRegistry adds a request to the first registry of the release image that VMs reach, by way of each DNS server on the VLAN.
func (p *plan) addRegistry() {
	const scenario = "egress-registry"
	list, why := registry.OfSite(p.Site)
	r := registry.Reached(list)
	switch {
	case why != "":
		p.skip(scenario, why)
		return
	case len(list) == 0:
		p.skip(scenario, "the release image names no registry")
		return
	case r == nil:
		p.skip(scenario, fmt.Sprintf("VMs cannot reach %s: %s", list[0], list[0].Missing))
		return
	case r.Via == registry.Router && cni.IsOVN(p.NetworkConfig()):
		p.skip(scenario, "in OVN-Kubernetes networks, pods cannot use the VLAN's router")
		return
	}
	add := func(label string, t *probe.Target) {
		t.Name, t.Path = r.Host, registryPath
		p.add(scenario, VLAN, label, probe.Step{TLS: t}, resolved, p.verified(r.Host, "", ""), responded)
	}
	if address, err := netip.ParseAddr(r.Host); err == nil {
		add(fmt.Sprintf("%s by %s", r, r.Via), &probe.Target{Address: netip.AddrPortFrom(address, r.Port)})
		return
	}
	p.skip(scenario, "DNS has no IPv4 address on the VLAN")
	for _, server := range p.servers(VLAN) {
		add(fmt.Sprintf("%s by %s, resolved at %s", r, r.Via, server), &probe.Target{Resolver: server, Port: r.Port})
	}
}

// resolved checks that the client knew an address. Clients of older images do not resolve names.
func resolved(o *probe.Outcome) string {
	if o.TLS != nil && !o.TLS.Address.IsValid() {
		return "the client cannot resolve names; its image is older than the plugin"
	}
	return ""
}

// responded is a check that accepts any HTTP status.
func responded(o *probe.Outcome) string {
	if o.Error == "" && o.HTTP == nil {
		return "the client cannot send requests over TLS; its image is older than the plugin"
	}
	return o.Error
}
