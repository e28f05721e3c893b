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

func dnsScenarios() []Scenario {
	var list []Scenario
	for _, c := range both {
		where := map[Client]string{VLAN: "on the VLAN", Pod: "in pods"}[c]
		prefix := "dns-" + string(c) + "-"
		add := func(name, needs, title, remedy string, steps func(*subject) []step) {
			if needs != "" {
				needs = prefix + needs
			}
			list = append(list, Scenario{
				Name: prefix + name, Group: GroupDNS, Clients: []Client{c}, Remedy: remedy, Title: title, Needs: needs,
				steps: func(s *subject, c Client) ([]step, string) {
					if why := s.noDNS(c); why != "" {
						return nil, why
					}
					return steps(s), ""
				},
			})
		}
		query := func(s *subject, network, kind string, edns bool, name string, check func(*probe.Reply) string) []step {
			var steps []step
			for _, server := range s.servers(c) {
				label := fmt.Sprintf("%s %s at %s over %s", name, kind, server, strings.ToUpper(network))
				if edns {
					label += " with EDNS"
				}
				steps = append(steps, step{
					request: probe.Step{DNS: &probe.Query{Server: server, Network: network, Name: name, Type: kind, EDNS: edns}}, label: label,
					check: without(func(o *probe.Outcome) string { return check(o.DNS) }),
				})
			}
			return steps
		}
		all := func(network string, edns bool) func(*subject) []step {
			return func(s *subject) []step {
				var steps []step
				for _, n := range s.names(c) {
					steps = append(steps, query(s, network, "A", edns, n.Name, func(r *probe.Reply) string {
						switch {
						case network == "udp" && !edns: // the other scenarios are about the transport
							return wantAddresses(r, n.Addresses)
						case r.Rcode != "NOERROR":
							return "want NOERROR, got " + describe(r)
						case edns && !r.EDNS:
							return "the reply has no OPT record"
						}
						return ""
					})...)
				}
				return steps
			}
		}
		add("udp", "", "DNS answers over UDP "+where, "check that no firewall filters UDP port 53: "+dnsRemedy, func(s *subject) []step {
			return query(s, "udp", "A", false, unusedLabel+"."+s.Cluster.Domains[0], func(*probe.Reply) string { return "" })
		})
		add("names", "udp", "all names of the hosted cluster resolve "+where, dnsRemedy, all("udp", false))
		add("tcp", "", "DNS answers over TCP "+where, "check that no firewall filters TCP port 53: "+dnsRemedy, all("tcp", false))
		add("edns", "udp", "DNS answers queries with EDNS "+where, "check that no device in between drops DNS packets with EDNS: "+dnsRemedy, all("udp", true))
		add("negative", "udp", "DNS denies names that do not exist "+where, dnsRemedy, func(s *subject) []step {
			var steps []step
			for _, domain := range s.Cluster.Domains {
				steps = append(steps, query(s, "udp", "A", false, unusedLabel+"."+domain, func(r *probe.Reply) string {
					if r.Rcode != "NXDOMAIN" {
						return "want NXDOMAIN, got " + describe(r)
					}
					return ""
				})...)
			}
			for _, n := range s.names(c) {
				if slices.ContainsFunc(n.Addresses, netip.Addr.Is6) || s.isApp(n.Name) {
					continue
				}
				steps = append(steps, query(s, "udp", "AAAA", false, n.Name, func(r *probe.Reply) string {
					if r.Rcode != "NOERROR" || slices.ContainsFunc(r.Addresses, netip.Addr.Is4) {
						return "want NOERROR, got " + describe(r)
					}
					return ""
				})...)
			}
			return steps
		})
		upstream := func(network string) func(*subject) []step { // DNS forwards over the protocol of the query
			return func(s *subject) []step {
				return query(s, network, "A", false, cmp.Or(s.upstream, upstreamProbe), func(r *probe.Reply) string {
					switch {
					case r.Rcode == "SERVFAIL" || r.Rcode == "REFUSED":
						return "no upstream resolver answers: " + r.Rcode
					case s.upstream != "" && len(r.Addresses) == 0:
						return "want an address, got " + describe(r)
					}
					return ""
				})
			}
		}
		add("upstream", "udp", "DNS forwards other names to the upstream resolvers "+where, upstreamRemedy, upstream("udp"))
		add("upstream-tcp", "tcp", "DNS forwards other names over TCP "+where, upstreamRemedy, upstream("tcp"))
	}
	return list
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
