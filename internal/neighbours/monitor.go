package neighbours

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Interval is the time between two probes of a Monitor.
const Interval = 15 * time.Second

// alternationPeriod is how long an address counts as one for which two hosts answer in turn.
const alternationPeriod = 10 * time.Minute

// A Monitor remembers which hosts answer for addresses on the VLAN, and exports them as metrics. It is safe for
// concurrent use, except Probe.
type Monitor struct {
	neighbor, answered, alternating *prometheus.Desc

	mu sync.Mutex // only Probe writes what it protects
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
	// answered is when current answered last.
	answered time.Time
	// returns is how often one of both has replaced the other again within alternationPeriod. A host that took an address
	// and lost it again leaves one return.
	returns int
}

// alternate reports whether two hosts answer in turn.
func (c changes) alternate(now time.Time) bool {
	return c.returns > 1 && now.Sub(c.changed) < alternationPeriod
}

// observe returns the changes after a MAC address has answered.
func (c changes) observe(mac net.HardwareAddr, now time.Time) changes {
	if c.current == nil || bytes.Equal(mac, c.current) {
		c.current, c.answered = mac, now
		return c
	}
	next := changes{current: mac, previous: c.current, changed: now, answered: now}
	if bytes.Equal(mac, c.previous) && now.Sub(c.changed) < alternationPeriod {
		next.returns = c.returns + 1
	}
	return next
}

// NewMonitor returns a Monitor whose metrics have the given prefix, the name of a daemon.
func NewMonitor(prefix string) *Monitor {
	return &Monitor{
		neighbor: prometheus.NewDesc(prometheus.BuildFQName(prefix, "vlan", "neighbor"), "1: a host answers ARP requests for an address on the VLAN; 0: none does.", []string{"address", "mac"}, nil),
		answered: prometheus.NewDesc(prometheus.BuildFQName(prefix, "vlan", "neighbor_last_answer_timestamp_seconds"), "Time of the last answer for the address, and the MAC address that answered.", []string{"address", "mac"}, nil),
		alternating: prometheus.NewDesc(prometheus.BuildFQName(prefix, "vlan", "neighbor_alternating"), "Always 1: within the last 10 minutes, two hosts answered ARP requests for the address in turn.",
			[]string{"address", "mac", "other"}, nil),
		history: map[netip.Addr]changes{},
	}
}

// Probe probes IPv4 addresses on networks of this host, and returns the MAC addresses that answer, nil for an address for
// which none does. Other addresses are ignored.
func (m *Monitor) Probe(ctx context.Context, addresses []netip.Addr) (map[netip.Addr]net.HardwareAddr, error) {
	results, err := Probe(ctx, addresses)
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
			history[address] = history[address].observe(mac, now)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers, m.stale, m.history = answers, stale, history
	return answers, nil
}

// Describe implements prometheus.Collector.
func (m *Monitor) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.neighbor
	ch <- m.answered
	ch <- m.alternating
}

// Collect implements prometheus.Collector.
func (m *Monitor) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	answers, history := m.answers, m.history // replaced, not changed
	m.mu.Unlock()
	for address, mac := range answers {
		value := 0.0
		if mac != nil {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(m.neighbor, prometheus.GaugeValue, value, address.String(), mac.String())
	}
	for address, c := range history {
		if c.current != nil {
			ch <- prometheus.MustNewConstMetric(m.answered, prometheus.GaugeValue, float64(c.answered.Unix()), address.String(), c.current.String())
		}
		if c.alternate(time.Now()) {
			ch <- prometheus.MustNewConstMetric(m.alternating, prometheus.GaugeValue, 1, address.String(), c.current.String(), c.previous.String())
		}
	}
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
