// Package probe tests DNS, DHCP and TLS from a VLAN, as a VM uses them. It leases no address and needs no capability.
package probe

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/probe"
)

// A Plan lists the DNS servers, DHCP servers and TLS servers to test.
type Plan struct {
	// Servers are DNS servers. Each is queried for all Names over UDP, and for the first name over TCP as well.
	Servers []netip.Addr
	Names   []string
	// Device is the network interface whose address is the source of all requests; if it is empty or does not exist,
	// the routing table decides. DHCP requires it.
	Device string
	// DHCP reports whether to request offers from the DHCP servers on Device: for the MAC address of Device, and for
	// each of MACs. No address is leased.
	DHCP bool
	MACs []net.HardwareAddr
	// Targets are the servers for TLS handshakes.
	Targets []Target
}

// A Target is a server name, and the address and port to connect to.
type Target struct {
	Name    string
	Address netip.AddrPort
}

const (
	// timeout is the time to wait for a connection or a DNS answer, attempts how often a DNS query is sent.
	timeout  = 2 * time.Second
	attempts = 2
	// maxConcurrent is the maximum number of DNS queries and TLS handshakes at a time. On a VLAN where no server answers,
	// each takes its whole timeout.
	maxConcurrent = 64
)

// Ask runs all tests concurrently and returns the report. The error of a failed test is in its entry; so is that of a
// test that has not ended when ctx ends. Two calls with DHCP on the same device must not run at the same time.
func (p *Plan) Ask(ctx context.Context) *probe.Report {
	r := &probe.Report{}
	var all sync.WaitGroup
	if p.DHCP {
		all.Go(func() { r.DHCP = discover(ctx, p.Device, p.MACs) })
	}
	from := sourceOf(p.Device)
	semaphore := make(chan struct{}, maxConcurrent)
	start := func(test func()) {
		all.Go(func() {
			semaphore <- struct{}{}
			defer func() { <-semaphore }()
			test()
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
		start(func() { from.handshake(ctx, &r.TLS[i]) })
	}
	all.Wait()
	r.Neighbors = p.neighbors()
	return r
}

// neighbors returns the MAC addresses that the kernel knows of the servers. Without the kernel's table, it returns none.
func (p *Plan) neighbors() map[netip.Addr]string {
	known, err := neighbours.MACs()
	if err != nil {
		return nil
	}
	servers := slices.Clone(p.Servers)
	for _, t := range p.Targets {
		servers = append(servers, t.Address.Addr())
	}
	list := map[netip.Addr]string{}
	for _, a := range servers {
		if mac := known[a]; mac != nil {
			list[a] = mac.String()
		}
	}
	return list
}

// A source has the source addresses of connections by family; nil means any.
type source struct {
	v4, v6 net.IP
	mtu    int // of the device; 0 if it is unknown
}

// sourceOf returns the addresses of a device. In a pod with several networks, routing rules select the interface by the
// source address, so that packets without one may leave through another interface.
func sourceOf(device string) (s source) {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return s
	}
	s.mtu = i.MTU
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

// dialer returns a dialer to a destination that uses the source address of the same family.
func (s source) dialer(network string, to netip.Addr) *net.Dialer {
	ip := s.v6
	if to.Is4() {
		ip = s.v4
	}
	d := &net.Dialer{Timeout: timeout}
	switch {
	case ip == nil:
	case network == "udp":
		d.LocalAddr = &net.UDPAddr{IP: ip}
	default:
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	return d
}
