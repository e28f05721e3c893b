// Package probe looks at a VLAN as a machine there does: it asks for names and addresses, and
// connects. It takes nothing that is offered, and needs no capability.
package probe

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/densityops/oooi/internal/probe"
)

// Plan is what to ask.
type Plan struct {
	// Servers are DNS servers, each of which is asked for all Names.
	Servers []netip.Addr
	Names   []string
	// Device is the network interface to look from: everything that is asked leaves from its
	// address. Empty for wherever the routes lead.
	Device string
	// DHCP has the DHCP servers asked that are on the device, for its own MAC address, which
	// they need not know, and for each of MACs.
	DHCP bool
	MACs []net.HardwareAddr
	// Targets are where to do TLS handshakes.
	Targets []Target
}

// Target is a name with the address and port that it is to be reached at.
type Target struct {
	Name    string
	Address netip.AddrPort
}

// How long an answer may take, and how often a question is asked before there is none.
const (
	patience = 2 * time.Second
	tries    = 2
	// atOnce is how many connections there are at a time.
	atOnce = 8
)

// Ask asks everything at once. What is not answered is in the report. It is safe for concurrent
// use, but for one device.
func (p *Plan) Ask(ctx context.Context) *probe.Report {
	r := &probe.Report{}
	var all sync.WaitGroup
	if p.DHCP {
		all.Go(func() { r.DHCP = discover(ctx, p.Device, p.MACs) })
	}
	from := sourceOf(p.Device)
	places := make(chan struct{}, atOnce)
	start := func(ask func()) {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			ask()
		})
	}
	for _, server := range p.Servers {
		for i, name := range p.Names {
			r.DNS = append(r.DNS, probe.Answer{Server: server, Network: "udp", Name: name})
			if i == 0 {
				r.DNS = append(r.DNS, probe.Answer{Server: server, Network: "tcp", Name: name})
			}
		}
	}
	for i := range r.DNS {
		start(func() { from.resolve(ctx, &r.DNS[i]) })
	}
	for _, t := range p.Targets {
		r.TLS = append(r.TLS, probe.Handshake{Name: t.Name, Address: t.Address})
	}
	for i := range r.TLS {
		start(func() { from.shake(ctx, &r.TLS[i]) })
	}
	all.Wait()
	return r
}

// source is the addresses that sockets leave from, by family; none for any.
type source struct{ v4, v6 net.IP }

// sourceOf is a device's. By the routes alone, packets to its network need not leave from it: where
// a pod has several, a rule sends on what comes from each.
func sourceOf(device string) (s source) {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return s
	}
	addresses, err := i.Addrs()
	if err != nil {
		return s
	}
	for _, a := range addresses {
		prefix, ok := a.(*net.IPNet)
		switch {
		case !ok:
		case prefix.IP.To4() != nil && s.v4 == nil:
			s.v4 = prefix.IP.To4()
		case prefix.IP.To4() == nil && s.v6 == nil && !prefix.IP.IsLinkLocalUnicast():
			s.v6 = prefix.IP
		}
	}
	return s
}

// dialer leaves from the source to a destination of its family.
func (s source) dialer(network string, to netip.Addr) *net.Dialer {
	ip := s.v6
	if to.Is4() {
		ip = s.v4
	}
	d := &net.Dialer{Timeout: patience}
	switch {
	case ip == nil:
	case network == "udp":
		d.LocalAddr = &net.UDPAddr{IP: ip}
	default:
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	return d
}
