// Package probe sends requests from a VLAN or from the pod network, as VMs and pods do. It needs no capability.
package probe

import (
	"net"
	"net/netip"
	"time"
)

const (
	// timeout is the time to wait for a connection or a DNS answer, attempts how often a DNS query is sent.
	timeout  = 2 * time.Second
	attempts = 2
	// maxConcurrent is the maximum number of requests at a time. On a VLAN where no server responds, each takes its
	// whole timeout.
	maxConcurrent = 64
)

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
