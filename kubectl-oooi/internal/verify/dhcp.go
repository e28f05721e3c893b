package verify

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
)

// noDHCP returns why DHCP cannot be tested; empty if it can.
func (s *subject) noDHCP() string {
	switch dhcp := s.Infra.Spec.InfraComponents.DHCP; {
	case !dhcp.IsEnabled():
		return "infraComponents.dhcp is not enabled"
	case dhcp.Image != "":
		return "infraComponents.dhcp.image is set, so that setup does not configure DHCP for test clients, which earlier images reject"
	}
	return ""
}

// addDHCP adds a request for an address, whose result all scenarios share.
func (p *plan) addDHCP() {
	if why := p.noDHCP(); why != "" {
		p.skip("dhcp-", why)
		return
	}
	for name, problem := range map[string]func(*probe.Binding) string{
		dhcpLease: p.addressProblem, "dhcp-options": p.optionProblem, "dhcp-servers": p.serverProblem,
	} {
		p.add(name, VLAN, "DHCP for "+p.client.String(), p.dhcpRequest(), answered, func(o *probe.Outcome) string { return problem(o.DHCP) })
	}
}

// dhcpRequest returns a request of the DHCP client.
func (s *subject) dhcpRequest() probe.Step {
	return probe.Step{DHCP: &probe.Client{MAC: s.client.String(), Servers: s.Model.DHCP}}
}

func (s *subject) addressProblem(b *probe.Binding) string {
	if !s.Infra.Spec.InfraComponents.DHCP.Leasable(b.Address) {
		return fmt.Sprintf("server %s leases %s, which is not in the ranges of the Infra", b.Server, b.Address)
	}
	return ""
}

func (s *subject) optionProblem(b *probe.Binding) string {
	subnet, _ := netip.ParsePrefix(s.Infra.Spec.NetworkConfig.CIDR)
	gateway, servers, dhcp := s.Model.Gateway(), s.resolvers(), s.Infra.Spec.InfraComponents.DHCP
	if !dhcp.SendsDefaultRoute() {
		gateway = netip.Addr{}
	}
	switch {
	case b.Hostname != s.hostname:
		return fmt.Sprintf("expected host name %s, got %q", s.hostname, b.Hostname)
	case gateway.IsValid() && !slices.Equal(b.Routers, []netip.Addr{gateway}):
		return fmt.Sprintf("expected router %s, got %q", gateway, join(b.Routers))
	case !gateway.IsValid() && len(b.Routers) > 0:
		return fmt.Sprintf("expected no router, got %q", join(b.Routers))
	case !dhcp.SendsDNS() && len(b.DNS) > 0:
		return fmt.Sprintf("expected no DNS servers, got %q", join(b.DNS))
	case dhcp.SendsDNS() && len(servers) > 0 && !slices.Equal(b.DNS, servers):
		return fmt.Sprintf("expected DNS servers %s, got %q", join(servers), join(b.DNS))
	case subnet.IsValid() && b.Bits != subnet.Bits():
		return fmt.Sprintf("expected a /%d subnet mask, got /%d", subnet.Bits(), b.Bits)
	}
	return ""
}

func (s *subject) serverProblem(b *probe.Binding) string {
	foreign := slices.DeleteFunc(slices.Clone(b.Servers), func(a netip.Addr) bool { // Infras may share a VLAN
		return slices.ContainsFunc(s.Snapshot.Infras, func(i *model.Infra) bool { return i.VLAN == s.Model.VLAN && slices.Contains(i.DHCP, a) })
	})
	if len(foreign) > 0 {
		return "another DHCP server sends offers: " + join(foreign)
	}
	return ""
}

// resolvers returns the DNS servers that DHCP sends, in order; nil if they are unknown.
func (s *subject) resolvers() []netip.Addr {
	if s.Infra.Spec.InfraComponents.DNS.IsEnabled() {
		return s.servers(VLAN)
	}
	var list []netip.Addr
	for _, text := range s.Infra.Spec.NetworkConfig.DNSServers {
		if a, err := v1alpha1.ParseAddress(text); err == nil {
			list = append(list, a)
		}
	}
	return list
}
