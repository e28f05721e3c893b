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

// plan is what to ask on the VLAN.
type plan struct {
	servers []netip.Addr
	names   []expectation
	dhcp    bool
	// machine is one with a lease, whom DHCP knows; nil for none.
	machine *leases.Lease
	targets []target
}

// expectation is a name with what it should resolve to.
type expectation struct {
	name      string
	addresses []netip.Addr
	// ports are those that it is dialled at, and whether an object says so, by which the
	// server's certificate has to have the name. A conventional name is served beside it.
	ports map[uint16]bool
}

// target is a name at an address and port, where its server is to answer.
type target struct {
	name     string
	address  netip.AddrPort
	promised bool
}

// probeReads is what a plan takes.
func probeReads() []Read {
	return slices.Concat(in(AtInfra, infras, proxyServers, leaseObjects, pods), in(AtControlPlane, machines), in(AtNetwork, attachments))
}

// plan is made to probe, and again to judge what was found. It is for who has declared probeReads.
func (s *Site) plan() *plan {
	p := &plan{names: s.vlanNames()}
	for _, c := range s.components() {
		switch c.name {
		case v1alpha1.ComponentDNS:
			p.servers = c.addresses
		case v1alpha1.ComponentDHCP:
			p.dhcp = true
		}
	}
	p.machine = s.knownMachine()
	for _, n := range p.names {
		for _, address := range n.addresses {
			for port, promised := range n.ports {
				p.targets = append(p.targets, target{n.name, netip.AddrPortFrom(address, port), promised})
			}
		}
	}
	for _, proxy := range s.proxyModels() { // by the way of who is not on the VLAN
		for _, l := range proxy.Listeners {
			for _, r := range l.Routes {
				for _, address := range proxy.VLAN {
					if domain, ok := strings.CutPrefix(r.Host, "*."); ok && !l.HTTP && address.Is4() {
						p.targets = append(p.targets, target{consoleHost + "." + domain, netip.AddrPortFrom(address, uint16(l.Port)), false}) //nolint:gosec // a port
					}
				}
			}
		}
	}
	slices.SortFunc(p.targets, func(a, b target) int {
		if a.name != b.name {
			return slices.IndexFunc(p.names, func(n expectation) bool { return n.name == a.name }) - slices.IndexFunc(p.names, func(n expectation) bool { return n.name == b.name })
		}
		return a.address.Compare(b.address)
	})
	return p
}

// arguments are those of 'xdsd probe'.
func (p *plan) arguments() []string {
	list := []string{"--device=" + render.ProbeDevice}
	for _, a := range p.servers {
		list = append(list, "--dns="+a.String())
	}
	for _, n := range p.names {
		list = append(list, "--name="+n.name)
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

// view is what clients of the VLAN see; nil where there is none.
func (s *Site) view() *model.View {
	for _, v := range s.Snapshot.VLANs {
		if s.Model != nil && v.Name == s.Model.VLAN {
			return v.View
		}
	}
	return nil
}

// vlanNames are the names of the hosted cluster on the VLAN that have an address, one of an
// application among them, with their IPv4 addresses.
func (s *Site) vlanNames() []expectation {
	view := s.view()
	if view == nil || s.Cluster == nil {
		return nil
	}
	var list []expectation
	add := func(name string, addresses []netip.Addr, ports map[uint16]bool) {
		v4 := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !a.Is4() })
		if len(v4) > 0 {
			list = append(list, expectation{name, v4, ports})
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

// consoleHost is an application that OpenShift has.
const consoleHost = "console-openshift-console"

// ports are those at which a name of the control plane is dialled: none of the name server's own.
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

// knownMachine is the first machine with a lease, which DHCP offers its address again.
func (s *Site) knownMachine() *leases.Lease {
	list, _ := s.leases()
	for _, l := range list {
		if l.State != "bound" || l.VM == "" || l.MAC == "" || !l.Address.Is4() {
			continue
		}
		if slices.ContainsFunc(s.list(machines, AtControlPlane), func(u *unstructured.Unstructured) bool {
			return u.GetNamespace()+"/"+u.GetName() == l.VM && len(read.MachineInterfaces(u, s.network().Key())) > 0
		}) {
			return l
		}
	}
	return nil
}

// takenAddresses are those that a probe cannot have: somebody's by DHCP, or by what he says himself.
func (s *Site) takenAddresses() map[netip.Addr]bool {
	taken := map[netip.Addr]bool{}
	list, _ := s.leases()
	for _, l := range list {
		taken[l.Address] = true
	}
	for _, u := range s.list(machines, AtControlPlane) {
		for _, a := range read.MachineAddresses(u, s.network().Key()) {
			taken[a] = true
		}
	}
	return taken
}

// furthest is how many addresses of a range are looked at.
const furthest = 1024

// freeAddress is the last that DHCP can give out and nobody has; DHCP begins with the first. The
// zero value for none.
func (s *Site) freeAddress(taken map[netip.Addr]bool) netip.Addr {
	for _, r := range slices.Backward(s.ranges()) {
		a := r.Last
		for range furthest {
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
