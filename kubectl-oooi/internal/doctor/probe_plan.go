package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// plan is what a probe requests on the VLAN, with the expected results.
type plan struct {
	// dnsServers are IPv4 addresses, as those of all targets: the pod of a probe has no IPv6 address on the VLAN.
	dnsServers []netip.Addr
	names      []Expectation
	dhcp       bool
	// machine is the lease of a VM that DHCP knows, nil if there is none.
	machine *leases.Lease
	targets []target
}

// Expectation is a name with the addresses to which it should resolve.
type Expectation struct {
	Name      string
	Addresses []netip.Addr
	// Ports has the ports at which clients connect to the name. The value is whether an object defines the
	// name, so that the server's certificate must contain it; conventional names need not be in it.
	Ports map[uint16]bool
}

// target is a name, and the address and port of a server for it.
type target struct {
	name      string
	address   netip.AddrPort
	certified bool
}

// probeReads returns what plan reads.
func probeReads() []Read {
	return slices.Concat(in(AtInfra, infras, proxyServers, leaseObjects, pods), in(AtControlPlane, machines), in(AtNetwork, attachments))
}

// plan returns the plan from which the arguments of the probe and the expected results are taken. The check
// must have declared probeReads.
func (s *Site) plan() *plan {
	p := &plan{names: s.vlanNames()}
	for _, c := range s.components() {
		switch c.name {
		case v1alpha1.ComponentDNS:
			p.dnsServers = slices.DeleteFunc(slices.Clone(c.addresses), func(a netip.Addr) bool { return !a.Is4() })
		case v1alpha1.ComponentDHCP:
			p.dhcp = true
		}
	}
	p.machine = s.knownMachine()
	for _, n := range p.names {
		for _, address := range n.Addresses {
			for port, certified := range n.Ports {
				p.targets = append(p.targets, target{n.Name, netip.AddrPortFrom(address, port), certified})
			}
		}
	}
	for _, proxy := range s.proxyModels() { // connections to applications through the proxy, as from outside of the VLAN
		for _, l := range proxy.Listeners {
			for _, r := range l.Routes {
				for _, address := range proxy.VLAN {
					if domain, ok := strings.CutPrefix(r.Host, "*."); ok && !l.HTTP && !l.UDP && address.Is4() {
						p.targets = append(p.targets, target{consoleHost + "." + domain, netip.AddrPortFrom(address, uint16(l.Port)), false}) //nolint:gosec // a port
					}
				}
			}
		}
	}
	slices.SortStableFunc(p.targets, func(a, b target) int {
		if a.name != b.name {
			return slices.IndexFunc(p.names, func(n Expectation) bool { return n.Name == a.name }) - slices.IndexFunc(p.names, func(n Expectation) bool { return n.Name == b.name })
		}
		return a.address.Compare(b.address)
	})
	// Behind a router that requires the PROXY protocol, names of apps resolve to the proxy as well.
	p.targets = slices.CompactFunc(p.targets, func(a, b target) bool { return a.name == b.name && a.address == b.address })
	return p
}

// arguments returns the arguments of 'xdsd probe'.
func (p *plan) arguments() []string {
	list := []string{"--device=" + render.ProbeDevice, "--timeout=" + probeRequests.String()}
	for _, a := range p.dnsServers {
		list = append(list, "--dns="+a.String())
	}
	for _, n := range p.names {
		list = append(list, "--name="+n.Name)
	}
	if p.dhcp {
		list = append(list, "--dhcp")
	}
	if p.machine != nil {
		list = append(list, "--dhcp-mac="+p.machine.MAC)
	}
	for _, t := range p.targets {
		list = append(list, fmt.Sprintf("--tls=%s@%s", t.name, t.address))
	}
	return list
}

// View returns the DNS view of the VLAN, nil if there is none.
func (s *Site) View() *model.View {
	for _, v := range s.Snapshot.VLANs {
		if s.Model != nil && v.Name == s.Model.VLAN {
			return v.View
		}
	}
	return nil
}

// vlanNames returns the Names of the VLAN's view.
func (s *Site) vlanNames() []Expectation { return s.Names(s.View()) }

// Names returns the names of the hosted cluster in a view that have IPv4 addresses, and for each apps domain the name of
// one application. It returns nil if the view is nil.
func (s *Site) Names(view *model.View) []Expectation {
	if view == nil || s.Cluster == nil {
		return nil
	}
	var list []Expectation
	add := func(name string, addresses []netip.Addr, ports map[uint16]bool) {
		v4 := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !a.Is4() })
		if len(v4) > 0 {
			list = append(list, Expectation{name, v4, ports})
		}
	}
	for _, n := range view.Names {
		if n.Target != nil && n.Cluster == s.Cluster.Ref {
			add(n.Name, n.Addresses, s.ports(n.Name))
		}
	}
	for _, a := range view.Apps {
		if a.Subtree && a.Served && a.Cluster != nil && *a.Cluster == s.Cluster.Ref {
			add(consoleHost+"."+a.Name, a.Addresses, map[uint16]bool{https: true})
		}
	}
	return list
}

// https is the port of applications.
const https = 443

// consoleHost is the host of an application that every OpenShift cluster has.
const consoleHost = "console-openshift-console"

// ports returns the ports of a control-plane name, as in Expectation. It is empty for names without endpoints.
func (s *Site) ports(name string) map[uint16]bool {
	ports := map[uint16]bool{}
	for _, h := range s.Cluster.Hostnames {
		for _, e := range h.Endpoints {
			if h.Name == name && e.Port > 0 && e.Port <= 1<<16-1 {
				port := uint16(e.Port)
				ports[port] = ports[port] || e.Source != "convention"
			}
		}
	}
	return ports
}

// knownMachine returns the lease of the first VM on the network that has one and that DHCP serves, so that DHCP offers that
// address again. It is nil if there is none.
func (s *Site) knownMachine() *leases.Lease {
	list, _ := s.leases()
	for _, l := range list {
		if l.State != "bound" || l.VM == "" || l.MAC == "" || !l.Address.Is4() {
			continue
		}
		if slices.ContainsFunc(s.list(machines, AtControlPlane), func(u *unstructured.Unstructured) bool {
			return u.GetNamespace()+"/"+u.GetName() == l.VM && !s.lacksLabel(u) && len(s.machineInterfaces(u)) > 0
		}) {
			return l
		}
	}
	return nil
}

// unusable returns why a pod must not have an address on the VLAN, empty if no reason is known.
func (s *Site) unusable(a netip.Addr) string {
	network := s.Infra.Spec.NetworkConfig
	subnets := []string{network.CIDR}
	for _, c := range network.AdditionalCIDRs {
		subnets = append(subnets, string(c))
	}
	at := slices.IndexFunc(subnets, func(text string) bool {
		subnet, err := netip.ParsePrefix(text)
		return err == nil && subnet.Contains(a)
	})
	if at < 0 {
		return "is not in " + strings.Join(subnets, " or ")
	}
	if subnet := netip.MustParsePrefix(subnets[at]).Masked(); a == subnet.Addr() || a.Is4() && !subnet.Contains(a.Next()) && !subnet.IsSingleIP() {
		return "is the first or last one of " + subnet.String() + ", which no host may have"
	}
	switch {
	case a == s.Model.Gateway():
		return "is the gateway's"
	case s.isAppsAddress(a):
		return "is that of apps"
	}
	for _, c := range s.components() {
		if slices.Contains(c.addresses, a) {
			return "is that of " + c.name
		}
	}
	if s.takenAddresses()[a] {
		return "is leased, or a VM has it"
	}
	return ""
}

// takenAddresses returns the addresses that a probe must not use: leased ones and those that VMs report.
func (s *Site) takenAddresses() map[netip.Addr]bool {
	taken := map[netip.Addr]bool{}
	list, _ := s.leases()
	for _, l := range list {
		taken[l.Address] = true
	}
	for _, u := range s.list(machines, AtControlPlane) {
		for _, a := range read.MachineAddresses(u, s.networks, s.network().Key()) {
			taken[a] = true
		}
	}
	return taken
}

// maxCandidates is the number of addresses of a range that are tried.
const maxCandidates = 1024

// freeAddress returns the last free IPv4 address of the ranges, since DHCP assigns the first ones first. It is
// the zero value if there is none.
func (s *Site) freeAddress(taken map[netip.Addr]bool) netip.Addr {
	for _, r := range slices.Backward(s.ranges()) {
		a := r.Last
		for range maxCandidates {
			if !r.Contains(a) {
				break
			}
			if !taken[a] && a.Is4() {
				return a
			}
			a = a.Prev()
		}
	}
	return netip.Addr{}
}
