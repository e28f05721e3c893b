package vip

import (
	"maps"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what /state shows.
type State struct {
	// Identity is this instance's name, MAC its address on the VLAN.
	Identity string `json:"identity"`
	MAC      string `json:"mac"`
	// Own are the addresses that the instance has added for itself.
	Own []netip.Prefix `json:"own,omitempty"`
	// Addresses are those that float; Holding says whether they are here, since Since, or the
	// start where nothing has changed yet.
	Addresses []netip.Addr `json:"addresses"`
	Holding   bool         `json:"holding"`
	Since     time.Time    `json:"since,omitzero"`
	// Transitions is how often they came or went.
	Transitions int `json:"transitions"`
	// Up is whether the interface has a carrier, Ready whether the proxy is.
	Up    bool `json:"up"`
	Ready bool `json:"ready"`
	// LeaseHolder is whose the Lease is, as far as is known; Leased says that it is ours for sure.
	LeaseHolder string `json:"leaseHolder"`
	Leased      bool   `json:"leased"`
	// Peers are the other instances by their MAC addresses.
	Peers map[string]string `json:"peers"`
	// AnsweredBy is the peer that answered for the address last, Answered when.
	AnsweredBy string    `json:"answeredBy,omitempty"`
	Answered   time.Time `json:"answered,omitzero"`
	// Conflicts counts the claims of others heard while the address was here, by who it was:
	// peer or stranger.
	Conflicts map[string]int `json:"conflicts"`
	// Failure is why the Lease is out of reach; empty where it is not.
	Failure string `json:"failure,omitempty"`
}

// State returns what is so now.
func (h *Holder) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.machine
	s := State{
		Identity: m.identity, MAC: m.self.String(), Own: h.Own, Addresses: h.Addresses, Holding: m.holding, Since: m.since, Transitions: m.transitions,
		Up: m.up, Ready: m.ready, LeaseHolder: m.lease.holder, Leased: m.leased(time.Now()),
		Peers: map[string]string{}, Answered: m.answered, Conflicts: maps.Clone(m.conflicts), Failure: h.failure,
	}
	for address, name := range m.peers() {
		s.Peers[address.String()] = name
		if address == m.answeredBy {
			s.AnsweredBy = name
		}
	}
	return s
}

// Ready reports whether this instance could hold the address: it is on the network, and knows
// who the others are.
func (h *Holder) Ready() (bool, any) {
	h.mu.Lock()
	ready := h.machine.up && h.machine.known
	h.mu.Unlock()
	return ready, h.State()
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName("xdsd", "hold", name), help, labels, nil)
}

var (
	holdingDesc     = desc("holding", "Whether this replica has the floating address.")
	sinceDesc       = desc("changed_timestamp_seconds", "Time of the last move of the floating address to or from this replica; 0 for none.")
	transitionsDesc = desc("transitions_total", "Moves of the floating address to or from this replica.")
	conflictsDesc   = desc("conflicts_total", "Claims of the floating address by other hosts while this replica had it, by peer or stranger.", "by")
	leasedDesc      = desc("leased", "Whether this replica has the Lease.")
	reachableDesc   = desc("lease_reachable", "Whether the last request to the API server succeeded.")
	readyDesc       = desc("proxy_ready", "Whether the proxy of this replica is ready.")
	upDesc          = desc("interface_up", "Whether the interface on the VLAN has a carrier.")
)

// Describe is prometheus.Collector's.
func (*Holder) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{holdingDesc, sinceDesc, transitionsDesc, conflictsDesc, leasedDesc, reachableDesc, readyDesc, upDesc} {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (h *Holder) Collect(ch chan<- prometheus.Metric) {
	s := h.State()
	is := func(d *prometheus.Desc, so bool) {
		value := 0.0
		if so {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	is(holdingDesc, s.Holding)
	is(leasedDesc, s.Leased)
	is(reachableDesc, s.Failure == "")
	is(readyDesc, s.Ready)
	is(upDesc, s.Up)
	since := 0.0
	if !s.Since.IsZero() {
		since = float64(s.Since.UnixMilli()) / 1000
	}
	ch <- prometheus.MustNewConstMetric(sinceDesc, prometheus.GaugeValue, since)
	ch <- prometheus.MustNewConstMetric(transitionsDesc, prometheus.CounterValue, float64(s.Transitions))
	for who, n := range s.Conflicts {
		ch <- prometheus.MustNewConstMetric(conflictsDesc, prometheus.CounterValue, float64(n), who)
	}
}
