package verify

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

func isolationScenarios() []Scenario {
	add := func(name, needs, title, remedy string, steps func(*subject) []step) Scenario {
		return Scenario{
			Name: name, Group: GroupIsolation, Clients: []Client{VLAN}, Title: title, Remedy: remedy, Needs: needs,
			steps: func(s *subject, _ Client) ([]step, string) {
				if why := s.Facts.Unread(site.Infras, ""); why != "" {
					return nil, "Infras of other namespaces are not known: " + why
				}
				list := steps(s)
				if len(list) == 0 {
					return nil, "no other hosted cluster with an Infra on another VLAN"
				}
				return list, ""
			},
		}
	}
	return []Scenario{
		add("isolation-names", "dns-vlan-udp", "names of other hosted clusters do not lead to their addresses on this VLAN",
			"compare spec.networkConfig.networkAttachmentDefinition of both Infras: Infras with the same one share a VLAN", (*subject).foreignNames),
		add("isolation-proxy", "", "the proxy does not route names of other hosted clusters",
			"run 'kubectl oooi routes -o wide' to find the route, and remove it from the ProxyServer", (*subject).foreignRoutes),
		add("isolation-addresses", "", "addresses of other hosted clusters cannot be reached from this VLAN",
			"check the router of the VLAN, and that the switches separate the VLANs", (*subject).foreignAddresses),
	}
}

// addressesOf returns the addresses at which clients reach another Infra's components.
func addressesOf(i *model.Infra) []netip.Addr {
	var list []netip.Addr
	if i.Proxy != nil {
		list = slices.Concat(i.Proxy.VLAN, i.Proxy.ClusterIPs)
	}
	return slices.DeleteFunc(list, func(a netip.Addr) bool { return !a.Is4() })
}

// foreignNames queries our DNS servers for names of other hosted clusters.
func (s *subject) foreignNames() []step {
	var steps []step
	for _, i := range s.others() {
		foreign := addressesOf(i)
		for _, h := range i.Cluster.Hostnames {
			for _, server := range s.servers(VLAN) {
				steps = append(steps, step{
					request: probe.Step{DNS: &probe.Query{Server: server, Network: "udp", Name: h.Name, Type: "A"}},
					label:   fmt.Sprintf("%s of %s at %s", h.Name, i.Cluster.Ref, server),
					check: without(func(o *probe.Outcome) string {
						if slices.ContainsFunc(o.DNS.Addresses, func(a netip.Addr) bool { return slices.Contains(foreign, a) }) {
							return "the name resolves to " + join(o.DNS.Addresses)
						}
						return ""
					}),
				})
			}
		}
	}
	return steps
}

// foreignRoutes connects to our proxy with names of other hosted clusters.
func (s *subject) foreignRoutes() []step {
	var steps []step
	if s.Model.Proxy == nil {
		return nil
	}
	for _, i := range s.others() {
		for _, h := range i.Cluster.Hostnames {
			// A port may have a default backend, which presents a certificate for its own names.
			routed := func(o *probe.Outcome) string {
				if o.TLS == nil || len(o.TLS.Chain) == 0 {
					return ""
				}
				if certificate, err := x509.ParseCertificate(o.TLS.Chain[0]); err == nil && certificate.VerifyHostname(h.Name) == nil {
					return "the proxy leads to a server with a certificate for this name"
				}
				return ""
			}
			for _, port := range ports(&h, "") {
				for _, a := range s.Model.Proxy.VLAN {
					if a.Is4() {
						t := probe.Target{Name: h.Name, Address: netip.AddrPortFrom(a, port)}
						steps = append(steps, step{
							request: probe.Step{TLS: &t}, label: fmt.Sprintf("%s of %s at %s", h.Name, i.Cluster.Ref, t.Address), check: routed,
						})
					}
				}
			}
		}
	}
	return steps
}

// foreignAddresses connects to the proxies of other hosted clusters, and queries their DNS servers.
func (s *subject) foreignAddresses() []step {
	var steps []step
	for _, i := range s.others() {
		if len(i.Cluster.Hostnames) == 0 {
			continue
		}
		name := i.Cluster.Hostnames[0].Name
		for _, a := range addressesOf(i) {
			for _, port := range s.portsOf(i) {
				t := probe.Target{Name: name, Address: netip.AddrPortFrom(a, port)}
				steps = append(steps, step{
					request: probe.Step{TLS: &t}, label: fmt.Sprintf("%s of %s", t.Address, i.Cluster.Ref),
					check: func(o *probe.Outcome) string {
						if o.TLS != nil && o.TLS.Connected {
							return "the address accepts connections"
						}
						return ""
					},
				})
			}
		}
		for _, a := range i.DNS {
			if !a.Is4() {
				continue
			}
			steps = append(steps, step{
				request: probe.Step{DNS: &probe.Query{Server: a, Network: "udp", Name: name, Type: "A"}}, label: fmt.Sprintf("DNS at %s of %s", a, i.Cluster.Ref),
				check: func(o *probe.Outcome) string {
					if o.DNS != nil {
						return "the DNS server answers: " + describe(o.DNS)
					}
					return ""
				},
			})
		}
	}
	return steps
}

// portsOf returns the TCP ports of an Infra's proxy: those that objects define, and those on which its ProxyServer listens.
func (s *subject) portsOf(i *model.Infra) []uint16 {
	var list []uint16
	for _, h := range i.Cluster.Hostnames {
		list = append(list, ports(&h, "")...)
	}
	for _, l := range s.listeners(i) {
		list = append(list, uint16(l.Port)) //nolint:gosec // a port
	}
	slices.Sort(list)
	return slices.Compact(list)
}
