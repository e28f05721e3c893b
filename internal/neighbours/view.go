package neighbours

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/internal/problem"
)

// View returns what the pod sees on the VLAN: its interfaces with an address on a network of the probed hosts, or with a name
// in names, and the hosts. Without names it returns all interfaces. It reads the interfaces from the kernel.
func (m *Monitor) View(names ...string) *problem.VLAN {
	view := &problem.VLAN{At: time.Now(), Interfaces: []problem.Interface{}, Hosts: m.Hosts()}
	interfaces, err := net.Interfaces()
	if err != nil {
		return view
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		one := problem.Interface{Name: i.Name, MAC: i.HardwareAddr.String(), MTU: i.MTU, Up: i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0,
			Addresses: []netip.Prefix{}}
		addresses, err := i.Addrs()
		if err != nil {
			continue // the interface was deleted
		}
		onVLAN := len(names) == 0 || slices.Contains(names, i.Name)
		for _, a := range addresses {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || !p.Addr().IsGlobalUnicast() {
				continue
			}
			one.Addresses = append(one.Addresses, p)
			onVLAN = onVLAN || slices.ContainsFunc(view.Hosts, func(h problem.Host) bool { return p.Contains(h.Address) })
		}
		if onVLAN {
			view.Interfaces = append(view.Interfaces, one)
		}
	}
	return view
}

// Hosts returns the hosts that were probed last, sorted by address.
func (m *Monitor) Hosts() []problem.Host {
	m.mu.Lock()
	answers, history := m.answers, m.history // replaced, not changed
	m.mu.Unlock()
	now := time.Now()
	list := make([]problem.Host, 0, len(answers))
	for address, mac := range answers {
		c := history[address]
		h := problem.Host{Address: address, MAC: strings.ToLower(mac.String()), Since: c.since, Refuses: c.refuses}
		if c.current != nil {
			h.LastMAC, h.LastAnswer = c.current.String(), c.answered
		}
		if c.alternate(now) {
			h.Other = c.previous.String()
		}
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b problem.Host) int { return a.Address.Compare(b.Address) })
	return list
}
