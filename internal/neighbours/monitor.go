package neighbours

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Interval is the time between two probes of a Monitor.
const Interval = 15 * time.Second

// alternationPeriod is how long an address counts as one for which two hosts answer in turn. While both are there, the answer changes
// at least with each request that the kernel sends again, after 75 seconds.
const alternationPeriod = 2 * time.Minute

// maxUnheard is longer than two rounds of probes: a host that refuses datagrams, and has not done so for that time, was gone in
// between, although the kernel kept its MAC address.
const maxUnheard = 2*Interval + 5*time.Second

// maxHosts limits the other hosts that a Monitor probes.
const maxHosts = 32

// A Monitor remembers which hosts answer for addresses on the VLAN. The zero value is ready to use. It is safe for concurrent use,
// except Probe.
type Monitor struct {
	mu sync.Mutex // only Probe writes what it protects
	// hosts are addresses of other hosts, such as VMs, that have sent us packets.
	hosts []netip.Addr
	// answers are the MAC addresses that answered the last ARP requests, nil if none did.
	answers map[netip.Addr]net.HardwareAddr
	history map[netip.Addr]changes
	stale   map[netip.Addr]bool // addresses whose entry in the neighbor table was stale at the last probe
}

// changes are the last changes of the MAC address that answers for an address.
type changes struct {
	// current is the last MAC address that answered, and previous the one before; nil if there was none.
	current, previous net.HardwareAddr
	// changed is when current replaced previous.
	changed time.Time
	// answered is when current answered last: by refusing a datagram, if refuses is set.
	answered time.Time
	// refuses reports whether current has ever refused a datagram.
	refuses bool
	// silent reports whether no host answered the last probe, and since is when that began or ended.
	silent bool
	since  time.Time
	// returns is how often one of both has replaced the other again within alternationPeriod. A host that took an address
	// and lost it again leaves one return.
	returns int
}

// alternate reports whether two hosts answer in turn.
func (c changes) alternate(now time.Time) bool {
	return c.returns > 1 && now.Sub(c.changed) < alternationPeriod
}

// observe returns the changes after a MAC address has answered, by refusing a datagram if refused is set.
func (c changes) observe(mac net.HardwareAddr, refused bool, now time.Time) changes {
	if c.silent || c.current == nil || refused && c.refuses && now.Sub(c.answered) > maxUnheard {
		c.silent, c.since = false, now
	}
	if c.current == nil || bytes.Equal(mac, c.current) {
		c.current, c.refuses = mac, c.refuses || refused
		if refused || !c.refuses { // otherwise the entry of the neighbor table proves less
			c.answered = now
		}
		return c
	}
	next := changes{current: mac, previous: c.current, changed: now, answered: now, refuses: refused, since: now}
	if bytes.Equal(mac, c.previous) && now.Sub(c.changed) < alternationPeriod {
		next.returns = c.returns + 1
	}
	return next
}

// lose returns the changes after no host has answered.
func (c changes) lose(now time.Time) changes {
	if !c.silent {
		c.silent, c.since = true, now
		if c.refuses { // the kernel noticed it later
			c.since = c.answered
		}
	}
	return c
}

// Probe probes IPv4 addresses on networks of this host, and returns the MAC addresses that answer, nil for an address for
// which none does. Other addresses are ignored. It also probes other hosts on the networks of these addresses that have
// sent us packets.
func (m *Monitor) Probe(ctx context.Context, addresses []netip.Addr) (map[netip.Addr]net.HardwareAddr, error) {
	networks, err := Networks()
	if err != nil {
		return nil, err
	}
	hosts, err := m.otherHosts(networks, addresses)
	if err != nil {
		return nil, err
	}
	results, err := probe(ctx, networks, slices.Concat(addresses, hosts), refusalTimeout)
	if err != nil {
		return nil, err
	}
	answers, stale, now := map[netip.Addr]net.HardwareAddr{}, map[netip.Addr]bool{}, time.Now()
	history := map[netip.Addr]changes{}
	for address, r := range results {
		switch previous, known := m.answers[address]; {
		case r.Use == Used:
			answers[address] = r.MAC
		case r.Use == Free:
			answers[address] = nil
		case known && !m.stale[address]:
			// The kernel probes its stale entry some seconds after this datagram. If the entry is stale again at the
			// next probe, the host sends ARP requests, and answers neither ours nor the datagrams.
			answers[address], stale[address] = previous, true
		default:
			stale[address] = true
			if known {
				answers[address] = nil
			}
		}
		history[address] = m.history[address]
		if mac := answers[address]; mac != nil {
			history[address] = history[address].observe(mac, r.Refused, now)
		} else {
			history[address] = history[address].lose(now)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hosts, m.answers, m.stale, m.history = hosts, answers, stale, history
	return answers, nil
}

// otherHosts returns the hosts to probe besides addresses: those that were probed before, and those in the kernel's
// neighbor table. Beyond maxHosts, the latter replace hosts that do not answer.
func (m *Monitor) otherHosts(networks OwnNetworks, addresses []netip.Addr) ([]netip.Addr, error) {
	known, err := table()
	if err != nil {
		return nil, err
	}
	networks = slices.DeleteFunc(slices.Clone(networks), func(p netip.Prefix) bool { return !slices.ContainsFunc(addresses, p.Contains) })
	other := func(a netip.Addr) bool { return networks.Source(a).IsValid() && !slices.Contains(addresses, a) }
	hosts := slices.DeleteFunc(slices.Clone(m.hosts), func(a netip.Addr) bool { return !other(a) })
	for _, a := range networks.OnOwnNetworks(slices.Collect(maps.Keys(known))) {
		if known[a].MAC == nil || !other(a) || slices.Contains(hosts, a) {
			continue
		}
		if len(hosts) == maxHosts {
			at := slices.IndexFunc(hosts, func(a netip.Addr) bool { return m.answers[a] == nil })
			if at < 0 {
				break
			}
			hosts = slices.Delete(hosts, at, at+1)
		}
		hosts = append(hosts, a)
	}
	return hosts, nil
}

// Repeat calls probe every Interval until ctx ends. It logs an error unless it is the same as that of the previous call.
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

// OnOwnNetworks returns the IPv4 addresses that are on a network of this host and not its own, each once, sorted.
func (n OwnNetworks) OnOwnNetworks(addresses []netip.Addr) []netip.Addr {
	list := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool {
		return !n.Source(a).IsValid() || slices.ContainsFunc(n, func(p netip.Prefix) bool { return p.Addr() == a })
	})
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}
