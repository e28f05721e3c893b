package verify

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/probe"
)

const (
	dnsRemedy      = "see the logs of the DNS pods, and 'kubectl oooi resolve NAME' for the expected answer"
	upstreamRemedy = "check spec.networkConfig.dnsServers of the Infra, and that the nodes reach these resolvers over UDP and TCP"
	// unusedLabel is a name that no component publishes.
	unusedLabel = "oooi-test-does-not-exist"
	// upstreamProbe is a name in a domain that does not exist (RFC 6761, 6.4): a resolver that works denies it.
	upstreamProbe = "oooi-test.invalid"
)

// dnsPromises are the scenarios about DNS, which there are for each client. needs is one of the other names.
var dnsPromises = []struct {
	name, needs, title, remedy string
	steps                      func(*subject, Client) []step
}{
	{"udp", "", "DNS answers over UDP ", "check that no firewall filters UDP port 53: " + dnsRemedy, func(s *subject, c Client) []step {
		return s.queries(c, probe.Query{Network: "udp", Type: "A", Name: unusedLabel + "." + s.Cluster.Domains[0]}, func(*probe.Reply) string { return "" })
	}},
	{"names", "udp", "all names of the hosted cluster resolve ", dnsRemedy, func(s *subject, c Client) []step {
		return s.allNames(c, probe.Query{Network: "udp", Type: "A"})
	}},
	{"tcp", "", "DNS answers over TCP ", "check that no firewall filters TCP port 53: " + dnsRemedy, func(s *subject, c Client) []step {
		return s.allNames(c, probe.Query{Network: "tcp", Type: "A"})
	}},
	{
		"edns", "udp", "DNS answers queries with EDNS ", "check that no device in between drops DNS packets with EDNS: " + dnsRemedy,
		func(s *subject, c Client) []step {
			return s.allNames(c, probe.Query{Network: "udp", Type: "A", EDNS: true})
		},
	},
	{"negative", "udp", "DNS denies names that do not exist ", dnsRemedy, (*subject).unknownNames},
	{"upstream", "udp", "DNS forwards other names to the upstream resolvers ", upstreamRemedy, func(s *subject, c Client) []step {
		return s.forwarded(c, "udp")
	}},
	{"upstream-tcp", "tcp", "DNS forwards other names over TCP ", upstreamRemedy, func(s *subject, c Client) []step { return s.forwarded(c, "tcp") }},
}

func dnsScenarios() []Scenario {
	var list []Scenario
	for _, c := range both {
		where, prefix := map[Client]string{VLAN: "on the VLAN", Pod: "in pods"}[c], "dns-"+string(c)+"-"
		for _, p := range dnsPromises {
			one := Scenario{Name: prefix + p.name, Group: GroupDNS, Clients: []Client{c}, Title: p.title + where, Remedy: p.remedy}
			if p.needs != "" {
				one.Needs = prefix + p.needs
			}
			one.steps = func(s *subject, c Client) ([]step, string) {
				if why := s.noDNS(c); why != "" {
					return nil, why
				}
				return p.steps(s, c), ""
			}
			list = append(list, one)
		}
	}
	return list
}

// queries returns a query to each of a client's DNS servers, with a check of the reply.
func (s *subject) queries(c Client, q probe.Query, check func(*probe.Reply) string) []step {
	var steps []step
	for _, q.Server = range s.servers(c) {
		label := fmt.Sprintf("%s %s at %s over %s", q.Name, q.Type, q.Server, strings.ToUpper(q.Network))
		if q.EDNS {
			label += " with EDNS"
		}
		query := q
		steps = append(steps, step{
			request: probe.Step{DNS: &query}, label: label, check: without(func(o *probe.Outcome) string { return check(o.DNS) }),
		})
	}
	return steps
}

// allNames returns queries for the addresses of all names of the hosted cluster.
func (s *subject) allNames(c Client, q probe.Query) []step {
	var steps []step
	for _, n := range s.names(c) {
		q.Name = n.Name
		steps = append(steps, s.queries(c, q, func(r *probe.Reply) string {
			switch {
			case q.Network == "udp" && !q.EDNS: // the other scenarios are about the transport
				return wantAddresses(r, n.Addresses)
			case r.Rcode != "NOERROR":
				return "want NOERROR, got " + describe(r)
			case q.EDNS && !r.EDNS:
				return "the reply has no OPT record"
			}
			return ""
		})...)
	}
	return steps
}

// unknownNames returns queries for names that do not exist, and for IPv6 addresses of names that have none.
func (s *subject) unknownNames(c Client) []step {
	var steps []step
	for _, domain := range s.Cluster.Domains {
		steps = append(steps, s.queries(c, probe.Query{Network: "udp", Type: "A", Name: unusedLabel + "." + domain}, func(r *probe.Reply) string {
			if r.Rcode != "NXDOMAIN" {
				return "want NXDOMAIN, got " + describe(r)
			}
			return ""
		})...)
	}
	for _, n := range s.names(c) {
		if s.isApp(n.Name) {
			continue
		}
		steps = append(steps, s.queries(c, probe.Query{Network: "udp", Type: "AAAA", Name: n.Name}, func(r *probe.Reply) string {
			if r.Rcode != "NOERROR" || slices.ContainsFunc(r.Addresses, netip.Addr.Is4) {
				return "want NOERROR, got " + describe(r)
			}
			return ""
		})...)
	}
	return steps
}

// forwarded returns queries for a name that DNS forwards, over the protocol of the query.
func (s *subject) forwarded(c Client, network string) []step {
	return s.queries(c, probe.Query{Network: network, Type: "A", Name: cmp.Or(s.upstream, upstreamProbe)}, func(r *probe.Reply) string {
		switch {
		case r.Rcode == "SERVFAIL" || r.Rcode == "REFUSED":
			return "no upstream resolver answers: " + r.Rcode
		case s.upstream != "" && len(r.Addresses) == 0:
			return "want an address, got " + describe(r)
		}
		return ""
	})
}

// noDNS returns why DNS cannot be tested by a client, empty if it can.
func (s *subject) noDNS(c Client) string {
	switch {
	case !s.Infra.Spec.InfraComponents.DNS.IsEnabled():
		return "infraComponents.dns is not enabled"
	case len(s.servers(c)) == 0:
		return "DNS has no IPv4 address for this client"
	case len(s.names(c)) == 0:
		return "the hosted cluster has no names"
	}
	return ""
}

// wantAddresses returns how a reply differs from the expected addresses, empty if it does not.
func wantAddresses(r *probe.Reply, want []netip.Addr) string {
	if r.Rcode == "NOERROR" && slices.Equal(r.Addresses, want) {
		return ""
	}
	return fmt.Sprintf("want %s, got %s", join(want), describe(r))
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
