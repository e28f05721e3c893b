package neighbours

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/densityops/oooi/internal/problem"
)

// Interval is the time between two probes of a Monitor.
const Interval = 15 * time.Second

// alternationPeriod is how long an address counts as one for which two hosts answer in turn. While both are there, the answer changes
// at least with each request that the kernel sends again, after 75 seconds.
const alternationPeriod = 2 * time.Minute

// maxSilence is longer than two rounds of probes: a host that refuses datagrams, and has not done so for that time, was gone in
// between, although the kernel kept its MAC address.
const maxSilence = 2*Interval + 5*time.Second

// A Monitor remembers which hosts answer for addresses on the VLAN. The zero value is ready to use. It is safe for concurrent use,
// except Probe.
type Monitor struct {
	mu    sync.Mutex
	hosts map[netip.Addr]host // replaced by each Probe, not changed
}

// host is the state of the host with an address.
type host struct {
	// Host is the reported state, except Other. MAC is empty if no host answered the last probe.
	problem.Host

	// inbound reports whether the host is probed because it has sent packets, such as a VM.
	inbound bool
	// previous is the MAC address that answered before LastMAC, which replaced it at changed; empty without one.
	previous string
	changed  time.Time
	// returns is how often one of both has replaced the other again within alternationPeriod. A host that took an address
	// and lost it again leaves one return.
	returns int
	// stale reports whether the entry in the neighbor table was stale at the last probe.
	stale bool
}

// alternates reports whether two hosts answer in turn.
func (h host) alternates(now time.Time) bool {
	return h.returns > 1 && now.Sub(h.changed) < alternationPeriod
}

// observe returns the host after a MAC address has answered, by refusing a datagram if refused is set.
func (h host) observe(mac string, refused bool, now time.Time) host {
	if h.LastMAC != "" && mac != h.LastMAC {
		next := host{Host: problem.Host{MAC: mac, Since: now, LastMAC: mac, LastAnswer: now, Refuses: refused}, previous: h.LastMAC, changed: now}
		if mac == h.previous && now.Sub(h.changed) < alternationPeriod {
			next.returns = h.returns + 1
		}
		return next
	}
	if h.MAC == "" || refused && h.Refuses && now.Sub(h.LastAnswer) > maxSilence {
		h.Since = now
	}
	h.MAC, h.LastMAC, h.Refuses = mac, mac, h.Refuses || refused
	if refused || !h.Refuses { // otherwise the entry of the neighbor table proves less
		h.LastAnswer = now
	}
	return h
}

// lose returns the host after none has answered.
func (h host) lose(now time.Time) host {
	switch {
	case h.MAC == "" && !h.Since.IsZero(): // none has answered the probe before either
	case h.Refuses: // the kernel noticed it later
		h.Since = h.LastAnswer
	default:
		h.Since = now
	}
	h.MAC = ""
	return h
}

// next returns the host after a probe. ok is false if nothing is known yet.
func (h host) next(r Result, known bool, now time.Time) (next host, ok bool) {
	switch {
	case r.Use == Used:
		next = h.observe(r.MAC.String(), r.Refused, now)
	case r.Use == Unknown && !known:
		return h, false
	case r.Use == Unknown && !h.stale && h.MAC != "":
		// The kernel probes its stale entry some seconds after this datagram. If the entry is stale again at the
		// next probe, the host sends ARP requests, but answers neither the kernel's ARP requests nor the datagrams.
		next = h.observe(h.MAC, false, now)
	default:
		next = h.lose(now)
	}
	next.stale = r.Use == Unknown
	return next, true
}

// Probe probes the IPv4 addresses that are on networks of this host, except the host's addresses. It also probes
// other hosts on these networks that have sent packets to this host.
func (m *Monitor) Probe(ctx context.Context, addresses []netip.Addr) error {
	own, err := ownNetworks()
	if err != nil {
		return err
	}
	addresses = own.others(addresses)
	others, err := m.otherHosts(own, addresses)
	if err != nil {
		return err
	}
	results, err := probe(ctx, 0, own.dial, slices.Concat(addresses, others), refusalTimeout)
	if err != nil {
		return err
	}
	hosts, now := map[netip.Addr]host{}, time.Now()
	for a, r := range results {
		previous, known := m.hosts[a]
		if h, ok := previous.next(r, known, now); ok {
			h.Address, h.inbound = a, slices.Contains(others, a)
			hosts[a] = h
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hosts = hosts
	return nil
}

// maxHosts limits the other hosts that a Monitor probes.
const maxHosts = 32

// otherHosts returns the hosts to probe besides addresses: those that were probed before, and those in the kernel's
// neighbor table. Beyond maxHosts, the latter replace hosts that do not answer.
func (m *Monitor) otherHosts(own networks, addresses []netip.Addr) ([]netip.Addr, error) {
	known, err := table(0)
	if err != nil {
		return nil, err
	}
	own = slices.DeleteFunc(own, func(p netip.Prefix) bool { return !slices.ContainsFunc(addresses, p.Contains) })
	var before, found []netip.Addr
	for a, h := range m.hosts {
		if h.inbound {
			before = append(before, a)
		}
	}
	for a, r := range known {
		if r.MAC != nil {
			found = append(found, a)
		}
	}
	list := own.others(before)
	for _, a := range own.others(found) {
		if len(list) >= maxHosts {
			at := slices.IndexFunc(list, func(a netip.Addr) bool {
				h, probed := m.hosts[a]
				return probed && h.MAC == ""
			})
			if at < 0 {
				break
			}
			list = slices.Delete(list, at, at+1)
		}
		list = append(list, a)
	}
	return slices.DeleteFunc(list, func(a netip.Addr) bool { return slices.Contains(addresses, a) }), nil
}

// Hosts returns the hosts that were probed last, sorted by address.
func (m *Monitor) Hosts() []problem.Host {
	m.mu.Lock()
	hosts := m.hosts
	m.mu.Unlock()
	now := time.Now()
	list := make([]problem.Host, 0, len(hosts))
	for _, h := range hosts {
		if h.alternates(now) {
			h.Other = h.previous
		}
		list = append(list, h.Host)
	}
	slices.SortFunc(list, func(a, b problem.Host) int { return a.Address.Compare(b.Address) })
	return list
}

// View returns the pod's interfaces with an address on a network of the probed hosts, or with a name in names, and
// the hosts. Without names it returns all interfaces. It reads the interfaces from the kernel.
func (m *Monitor) View(names ...string) *problem.VLAN {
	view := &problem.VLAN{At: time.Now(), Interfaces: []problem.Interface{}, Hosts: m.Hosts()}
	interfaces, _ := net.Interfaces() // on error, none is known
	for _, i := range interfaces {
		addresses := prefixes(&i)
		onVLAN := len(names) == 0 || slices.Contains(names, i.Name) || slices.ContainsFunc(view.Hosts, func(h problem.Host) bool {
			return slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return p.Contains(h.Address) })
		})
		if onVLAN && i.Flags&net.FlagLoopback == 0 {
			up := i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0
			view.Interfaces = append(view.Interfaces, problem.Interface{Name: i.Name, MAC: i.HardwareAddr.String(), MTU: i.MTU, Up: up, Addresses: addresses})
		}
	}
	return view
}

// Repeat calls probe every Interval until ctx is done. It logs an error unless the previous call returned the same
// error.
func Repeat(ctx context.Context, log *slog.Logger, probe func(context.Context) error) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	failure := ""
	for {
		switch err := probe(ctx); {
		case err == nil:
			failure = ""
		case ctx.Err() == nil && err.Error() != failure:
			failure = err.Error()
			log.Warn("cannot probe the other hosts on the VLAN", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
