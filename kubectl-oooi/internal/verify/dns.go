package verify

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/probe"
)

const (
	// unusedLabel is a label that no component publishes.
	unusedLabel = "oooi-test-does-not-exist"
	// upstreamProbe is a name in a domain that does not exist (RFC 6761, 6.4). A working resolver returns NXDOMAIN.
	upstreamProbe = "oooi-test.invalid"
)

// addDNS adds a client's queries to each of its DNS servers.
func (p *plan) addDNS(c Client) {
	prefix := "dns-" + string(c) + "-"
	if why := p.noDNS(c); why != "" {
		p.skip(prefix, why)
		return
	}
	query := func(scenario string, q probe.Query, problem func(*probe.Reply) string) {
		q.Network, q.Type = cmp.Or(q.Network, "udp"), cmp.Or(q.Type, "A")
		label := fmt.Sprintf("%s %s at %s over %s", q.Name, q.Type, q.Server, strings.ToUpper(q.Network))
		if q.EDNS {
			label += " with EDNS"
		}
		p.add(prefix+scenario, c, label, probe.Step{DNS: &q}, answered, func(o *probe.Outcome) string { return problem(o.DNS) })
	}
	upstream := cmp.Or(p.upstream, upstreamProbe)
	for _, server := range p.servers(c) {
		query("udp", probe.Query{Server: server, Name: unusedLabel + "." + p.Cluster.Domains[0]}, anyReply)
		for _, domain := range p.Cluster.Domains {
			query("negative", probe.Query{Server: server, Name: unusedLabel + "." + domain}, wantDenial)
		}
		for _, n := range p.names(c) {
			query("names", probe.Query{Server: server, Name: n.Name}, func(r *probe.Reply) string { return wantAddresses(r, n.Addresses) })
			query("tcp", probe.Query{Server: server, Name: n.Name, Network: "tcp"}, wantSuccess)
			query("edns", probe.Query{Server: server, Name: n.Name, EDNS: true}, wantOPT)
			if !p.isApp(n.Name) {
				query("negative", probe.Query{Server: server, Name: n.Name, Type: "AAAA"}, wantNoAddress)
			}
		}
		query("upstream", probe.Query{Server: server, Name: upstream}, p.wantForwarded)
		query("upstream-tcp", probe.Query{Server: server, Name: upstream, Network: "tcp"}, p.wantForwarded)
	}
}

// noDNS returns why a client cannot test DNS; empty if it can.
func (s *subject) noDNS(c Client) string {
	switch {
	case !s.Infra.Spec.InfraComponents.DNS.IsEnabled():
		return "infraComponents.dns is not enabled"
	case len(s.servers(c)) == 0:
		return "DNS lacks an IPv4 address for this client"
	case len(s.names(c)) == 0:
		return "no names of the hosted cluster are known"
	}
	return ""
}

// The functions below return what is wrong with a reply; empty if the reply is as expected.

func anyReply(*probe.Reply) string { return "" }

func wantDenial(r *probe.Reply) string { return wantRcode(r, "NXDOMAIN") }

func wantSuccess(r *probe.Reply) string { return wantRcode(r, "NOERROR") }

// wantNoAddress checks the reply to a query for IPv6 addresses of a name that has none.
func wantNoAddress(r *probe.Reply) string {
	if slices.ContainsFunc(r.Addresses, netip.Addr.Is4) {
		return "expected NOERROR, got " + describe(r)
	}
	return wantSuccess(r)
}

func wantRcode(r *probe.Reply, rcode string) string {
	if r.Rcode != rcode {
		return fmt.Sprintf("expected %s, got %s", rcode, describe(r))
	}
	return ""
}

func wantOPT(r *probe.Reply) string {
	if problem := wantSuccess(r); problem != "" || r.EDNS {
		return problem
	}
	return "the reply lacks an OPT record"
}

func wantAddresses(r *probe.Reply, want []netip.Addr) string {
	if r.Rcode == "NOERROR" && slices.Equal(r.Addresses, want) {
		return ""
	}
	return fmt.Sprintf("expected %s, got %s", join(want), describe(r))
}

func (s *subject) wantForwarded(r *probe.Reply) string {
	switch {
	case r.Rcode == "SERVFAIL" || r.Rcode == "REFUSED":
		return "no upstream resolver responds: " + r.Rcode
	case s.upstream != "" && len(r.Addresses) == 0:
		return "expected an address, got " + describe(r)
	}
	return ""
}

// describe returns the response code and the addresses of a reply.
func describe(r *probe.Reply) string {
	return strings.TrimSpace(r.Rcode + " " + join(r.Addresses))
}

func join(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// defaultMTU is Ethernet's MTU.
const defaultMTU = 1500

// addMTU adds queries in packets of several sizes up to the VLAN's MTU. Without an MTU in the network, OVN-Kubernetes uses the pod
// network's MTU; the client sends no packets larger than its interface's MTU.
func (p *plan) addMTU() {
	const scenario = "mtu-vlan"
	p.skip(scenario, "infraComponents.dns is not enabled, so no server responds to large packets")
	if !p.Infra.Spec.InfraComponents.DNS.IsEnabled() {
		return
	}
	mtu := cmp.Or(cni.MTU(p.NetworkConfig()), defaultMTU)
	sizes := map[int]bool{mtu: true}
	for _, size := range []int{576, 1280, 1400, defaultMTU} {
		if size < mtu {
			sizes[size] = true
		}
	}
	for _, server := range p.servers(VLAN) {
		for _, size := range slices.Sorted(maps.Keys(sizes)) {
			q := probe.Query{Server: server, Network: "udp", Name: upstreamProbe, Type: "A", Size: size}
			p.add(scenario, VLAN, fmt.Sprintf("packet of %d bytes to %s", size, server), probe.Step{DNS: &q}, answered)
		}
	}
}
