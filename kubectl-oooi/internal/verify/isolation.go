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

// addIsolation adds requests for names and addresses of hosted clusters on other VLANs.
func (p *plan) addIsolation() {
	if why := p.Facts.Unread(site.Infras, ""); why != "" {
		p.skip("isolation-", "cannot read Infras in other namespaces: "+why)
		return
	}
	p.skip("isolation-", "no other hosted cluster with an Infra on another VLAN")
	for _, i := range p.Snapshot.Infras {
		if i.Cluster == nil || p.Cluster == nil || i.Cluster.Ref == p.Cluster.Ref || i.VLAN == p.Model.VLAN || len(i.Cluster.Hostnames) == 0 {
			continue
		}
		for _, h := range i.Cluster.Hostnames {
			p.addForeignName(i, &h)
		}
		p.addForeignAddresses(i)
	}
}

// addForeignName adds queries to this Infra's DNS servers for a name of another hosted cluster, and connections to its proxy with
// that name.
func (p *plan) addForeignName(i *model.Infra, h *model.Hostname) {
	foreign := addressesOf(i)
	for _, server := range p.servers(VLAN) {
		p.add("isolation-names", VLAN, fmt.Sprintf("%s of %s at %s", h.Name, i.Cluster.Ref, server),
			probe.Step{DNS: &probe.Query{Server: server, Network: "udp", Name: h.Name, Type: "A"}}, answered, func(o *probe.Outcome) string {
				if slices.ContainsFunc(o.DNS.Addresses, func(a netip.Addr) bool { return slices.Contains(foreign, a) }) {
					return "the name resolves to " + join(o.DNS.Addresses)
				}
				return ""
			})
	}
	if p.Model.Proxy == nil {
		return
	}
	for _, a := range ipv4(p.Model.Proxy.VLAN) {
		for _, port := range ports(h, "") {
			t := probe.Target{Name: h.Name, Address: netip.AddrPortFrom(a, port)}
			p.add("isolation-proxy", VLAN, fmt.Sprintf("%s of %s at %s", h.Name, i.Cluster.Ref, t.Address), probe.Step{TLS: &t}, notCertifiedFor(h.Name))
		}
	}
}

// notCertifiedFor returns a check that fails if the server has a certificate for a name. A port may have a default backend, which
// presents a certificate for its own names.
func notCertifiedFor(name string) check {
	return func(o *probe.Outcome) string {
		if o.TLS == nil || len(o.TLS.Chain) == 0 {
			return ""
		}
		if certificate, err := x509.ParseCertificate(o.TLS.Chain[0]); err == nil && certificate.VerifyHostname(name) == nil {
			return "the proxy connects to a server with a certificate for this name"
		}
		return ""
	}
}

// addForeignAddresses adds connections to the proxy of another hosted cluster, and queries of its DNS servers.
func (p *plan) addForeignAddresses(i *model.Infra) {
	const scenario = "isolation-addresses"
	name := i.Cluster.Hostnames[0].Name
	for _, a := range addressesOf(i) {
		for _, port := range p.portsOf(i) {
			t := probe.Target{Name: name, Address: netip.AddrPortFrom(a, port)}
			p.add(scenario, VLAN, fmt.Sprintf("%s of %s", t.Address, i.Cluster.Ref), probe.Step{TLS: &t}, func(o *probe.Outcome) string {
				if o.TLS != nil && o.TLS.Connected {
					return "the address accepts connections"
				}
				return ""
			})
		}
	}
	for _, a := range ipv4(i.DNS) {
		q := probe.Query{Server: a, Network: "udp", Name: name, Type: "A"}
		p.add(scenario, VLAN, fmt.Sprintf("DNS at %s of %s", a, i.Cluster.Ref), probe.Step{DNS: &q}, func(o *probe.Outcome) string {
			if o.DNS != nil {
				return "the DNS server responds: " + describe(o.DNS)
			}
			return ""
		})
	}
}

// addressesOf returns the addresses of another Infra's components.
func addressesOf(i *model.Infra) []netip.Addr {
	if i.Proxy == nil {
		return nil
	}
	return ipv4(slices.Concat(i.Proxy.VLAN, i.Proxy.ClusterIPs))
}

// portsOf returns the TCP ports of an Infra's proxy: the ports that objects define, and the ProxyServer's ports.
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
