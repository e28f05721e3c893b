package verify

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
)

// noDHCP returns why DHCP cannot be tested, empty if it can.
func (s *subject) noDHCP() string {
	switch dhcp := s.Infra.Spec.InfraComponents.DHCP; {
	case !dhcp.IsEnabled():
		return "infraComponents.dhcp is not enabled"
	case dhcp.Image != "":
		return "infraComponents.dhcp.image is set, so that setup renders no test clients, which an earlier version refuses"
	}
	return ""
}

const dhcpRemedy = "see the logs of the DHCP pods; if DHCP was set up by an earlier version, run 'kubectl oooi setup' again"

func dhcpScenarios() []Scenario {
	var list []Scenario
	add := func(name, needs, title, remedy string, check func(*subject, *probe.Binding) string) {
		list = append(list, Scenario{
			Name: name, Group: GroupDHCP, Clients: []Client{VLAN}, Title: title, Remedy: remedy, Needs: needs,
			steps: func(s *subject, _ Client) ([]step, string) {
				return []step{{
					request: probe.Step{DHCP: &probe.Client{MAC: s.client, Servers: s.Model.DHCP}}, label: "DHCP for " + s.client,
					check: without(func(o *probe.Outcome) string { return check(s, o.DHCP) }),
				}}, s.noDHCP()
			},
		})
	}
	add(dhcpLease, "", "DHCP leases an address of the ranges to a VM", dhcpRemedy, func(s *subject, b *probe.Binding) string {
		if !s.Infra.Spec.InfraComponents.DHCP.Leasable(b.Address) {
			return fmt.Sprintf("server %s leases %s, which is not in the ranges of the Infra", b.Server, b.Address)
		}
		return ""
	})
	add("dhcp-options", dhcpLease, "DHCP sends the host name, the gateway and our DNS servers", dhcpRemedy, func(s *subject, b *probe.Binding) string {
		subnet, _ := netip.ParsePrefix(s.Infra.Spec.NetworkConfig.CIDR)
		gateway, servers, dhcp := s.Model.Gateway(), s.resolvers(), s.Infra.Spec.InfraComponents.DHCP
		if !dhcp.SendsDefaultRoute() {
			gateway = netip.Addr{}
		}
		switch {
		case b.Hostname != s.hostname:
			return fmt.Sprintf("want the host name %s, got %q", s.hostname, b.Hostname)
		case gateway.IsValid() && !slices.Equal(b.Routers, []netip.Addr{gateway}):
			return fmt.Sprintf("want the router %s, got %q", gateway, join(b.Routers))
		case !gateway.IsValid() && len(b.Routers) > 0:
			return fmt.Sprintf("want no router, got %q", join(b.Routers))
		case !dhcp.SendsDNS() && len(b.DNS) > 0:
			return fmt.Sprintf("want no DNS servers, got %q", join(b.DNS))
		case dhcp.SendsDNS() && len(servers) > 0 && !slices.Equal(b.DNS, servers):
			return fmt.Sprintf("want the DNS servers %s, got %q", join(servers), join(b.DNS))
		case subnet.IsValid() && b.Bits != subnet.Bits():
			return fmt.Sprintf("want a subnet mask of %d bits, got %d", subnet.Bits(), b.Bits)
		}
		return ""
	})
	add("dhcp-servers", dhcpLease, "no other DHCP server answers on the VLAN",
		"find the server by its address and stop it, or block its packets in the switch", func(s *subject, b *probe.Binding) string {
			foreign := slices.DeleteFunc(slices.Clone(b.Servers), func(a netip.Addr) bool { // Infras may share a VLAN
				return slices.ContainsFunc(s.Snapshot.Infras, func(i *model.Infra) bool { return i.VLAN == s.Model.VLAN && slices.Contains(i.DHCP, a) })
			})
			if len(foreign) > 0 {
				return "another DHCP server sends offers: " + join(foreign)
			}
			return ""
		})
	return append(list, vmScenario())
}

const dhcpLease = "dhcp-lease"

// resolvers returns the DNS servers that DHCP sends, in their order; nil if they are not known.
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
