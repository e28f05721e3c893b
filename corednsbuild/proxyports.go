package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/problem"
)

const (
	// closedRounds is the number of failed rounds after which a port counts as closed. Within these 90 seconds
	// another replica takes over a floating address, and the kernel drops the MAC address of a failed host.
	closedRounds = 6
	// unservedRounds is the same for a host that refuses connections to all ports. It is five minutes, since a new
	// pod answers ARP requests before its images are pulled.
	unservedRounds = 20
	// maxNames limits the names in the evidence.
	maxNames = 3
)

// Remedies for ports that accept no connections.
const (
	filteredRemedy = "find the filter: 'nft list ruleset' on the proxy's node and in its pod, MultiNetworkPolicies, ACLs and port security of " +
		"the switch; or another device with the pod's MAC address, which the switch then learns on two ports"
	refusedRemedy = "find what refuses the connections: a proxy that does not listen ('kubectl oooi routes'), a filter " +
		"('nft list ruleset' on the proxy's node and in its pod), or another host with the address"
)

// proxyPorts returns the VLAN addresses of the proxy with each port at which VMs connect to a name of the control plane.
func proxyPorts(infra *model.Infra) []netip.AddrPort {
	if infra.Proxy == nil || infra.Cluster == nil {
		return nil
	}
	var list []netip.AddrPort
	for _, h := range infra.Cluster.Hostnames {
		for _, e := range h.Endpoints {
			for _, a := range infra.Proxy.VLAN {
				if e.Port > 0 && e.Port <= 1<<16-1 {
					list = append(list, netip.AddrPortFrom(a, uint16(e.Port)))
				}
			}
		}
	}
	return list
}

// closedPorts returns a problem for each VLAN address of an Infra's proxy on which a port accepts no connections.
func closedPorts(infra *model.Infra, results []neighbours.PortResult) []problem.Problem {
	var list []problem.Problem
	wanted := proxyPorts(infra)
	if wanted == nil {
		return nil
	}
	for _, a := range infra.Proxy.VLAN {
		var accepted, closed, evidence []string
		var ports []uint16
		remedy, verb := refusedRemedy, "refused"
		longest := 0
		for _, r := range results {
			port := strconv.Itoa(int(r.Address.Port()))
			switch {
			case r.Address.Addr() != a || !slices.Contains(wanted, r.Address):
			case r.Result == neighbours.Accepted:
				accepted = append(accepted, port)
			case r.Failures >= closedRounds:
				closed, ports = append(closed, port), append(ports, r.Address.Port())
				evidence = append(evidence, fmt.Sprintf("%s: %s", r.Address, r.Result))
				longest = max(longest, r.Failures)
				if r.Result == neighbours.Silent {
					remedy, verb = filteredRemedy, "dropped"
				}
			}
		}
		why := "they are " + verb + ", although the host answers ARP requests"
		switch {
		case closed == nil || accepted == nil && remedy == refusedRemedy && longest < unservedRounds:
			continue
		case accepted != nil:
			why = fmt.Sprintf("they are %s, but those to port %s are accepted", verb, strings.Join(accepted, ", "))
		}
		p := problem.Failed(problem.ProxyPortClosed, infra.Ref,
			"the proxy's address %s accepts no connections over the VLAN at TCP port %s: %s", a, strings.Join(closed, ", "), why)
		p.Remedy = remedy
		list = append(list, p.WithEvidence(evidence...).WithEvidence("VMs connect there to "+strings.Join(namesAt(infra.Cluster, ports), ", ")))
	}
	return list
}

// namesAt returns names of a cluster to which clients connect at one of the ports, at most maxNames.
func namesAt(c *model.Cluster, ports []uint16) []string {
	var names []string
	for _, h := range c.Hostnames {
		if slices.ContainsFunc(h.Endpoints, func(e model.Endpoint) bool {
			return slices.ContainsFunc(ports, func(p uint16) bool { return int32(p) == e.Port })
		}) {
			names = append(names, h.Name)
		}
	}
	return names[:min(len(names), maxNames)]
}
