package vip

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/xdsd/internal/sourcelimit"
)

// State is the response of /state.
type State struct {
	// Identity is this replica's name, MAC its MAC address on the VLAN.
	Identity string `json:"identity"`
	MAC      string `json:"mac"`
	// Own are the replica's own addresses, if it has added them itself.
	Own []netip.Prefix `json:"own,omitempty"`
	// Addresses are the floating addresses. Holding is set if this replica has them. Since is when this process last
	// added or removed them, or found them on the interface at its start; zero if it has done none of these.
	Addresses []netip.Addr `json:"addresses"`
	Holding   bool         `json:"holding"`
	Since     time.Time    `json:"since,omitzero"`
	// Transitions counts how often this replica added or removed the addresses.
	Transitions int `json:"transitions"`
	// Up is set if the interface has a carrier, Ready if the proxy is ready.
	Up    bool `json:"up"`
	Ready bool `json:"ready"`
	// LeaseHolder is the last known holder of the Lease; empty for none. Leased is set if this replica certainly has
	// the Lease: it has renewed it within its duration.
	LeaseHolder string `json:"leaseHolder"`
	Leased      bool   `json:"leased"`
	// Peers are the names of the other replicas by their MAC addresses.
	Peers map[mac]string `json:"peers"`
	// AnsweredBy is the peer that last answered for an address, and Answered is when it did; empty and zero if none
	// has.
	AnsweredBy string    `json:"answeredBy,omitempty"`
	Answered   time.Time `json:"answered,omitzero"`
	// Answers are the hosts that answer for the floating addresses, the witnesses and the replica's own addresses; several for
	// an address that two hosts have. The replica itself does not answer its probes.
	Answers []problem.Answer `json:"answers,omitempty"`
	// Conflicts counts the claims of other hosts that were received while this replica had the addresses. The keys are
	// peer and stranger.
	Conflicts map[string]int `json:"conflicts"`
	// Sources are the limits of the clients on the VLAN, and their state.
	Sources Sources `json:"sources"`
	// Failure is why the Lease could not be read or written last; empty if it could.
	Failure string `json:"failure,omitempty"`
	// Problems are the problems in the response of /problems.
	Problems []problem.Problem `json:"problems"`
}

// Sources are the limits of the clients on the VLAN.
type Sources struct {
	sourcelimit.Limits
	sourcelimit.State

	// Exceptions is set if some networks have other limits.
	Exceptions bool `json:"exceptions,omitempty"`
	// Failure is why the limits do not apply, or why their state cannot be read; empty without one.
	Failure string `json:"failure,omitempty"`
}

// sources returns the limits of clients with their state in the kernel.
func (h *Holder) sources() Sources {
	s := Sources{Limits: h.Sources.Limits, Exceptions: len(h.Sources.Networks) > 0, Failure: h.sourceFailure}
	if s.Failure != "" {
		return s
	}
	state, err := h.Sources.Read()
	if err != nil {
		s.Failure = err.Error()
		return s
	}
	s.State = *state
	return s
}

// State returns the current state. It is safe for concurrent use.
func (h *Holder) State() State {
	sources := h.sources()
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.machine
	now := time.Now()
	s := State{
		Identity: m.identity, MAC: m.self.String(), Own: h.Own, Addresses: h.Addresses, Holding: m.holding, Since: m.since, Transitions: m.transitions,
		Up: m.up, Ready: m.ready, LeaseHolder: m.lease.holder, Leased: m.leased(now), Answers: h.answers.list(now, 0),
		Peers: m.peers(), AnsweredBy: m.peers()[m.answeredBy], Answered: m.answeredAt, Conflicts: maps.Clone(m.conflicts),
		Failure: cmp.Or(h.writes.err, h.reads.err), Sources: sources,
	}
	s.Problems = h.problems(now, sources.Failure)
	return s
}

// problems returns the problems that exist now. sourceFailure is why the limits of clients do not apply; empty if they do. The
// caller must hold mu.
func (h *Holder) problems(now time.Time, sourceFailure string) []problem.Problem {
	list := h.machine.problems(now, h.answers)
	if unreadable := h.reads.problems(now); unreadable != nil {
		list = append(list, unreadable...)
	} else {
		list = append(list, h.writes.problems(now)...)
	}
	if sourceFailure != "" {
		list = append(list, problem.Warned(problem.SourceLimitsNotApplied, model.Ref{}, "the limits of each client do not apply: %s", sourceFailure))
	}
	return h.log.Update(now, list)
}

// Problems returns the response of /problems. It is safe for concurrent use. It omits answers for the floating
// addresses, since Problems reports their conflicts.
func (h *Holder) Problems() problem.Report {
	list := h.State().Problems
	h.mu.Lock()
	defer h.mu.Unlock()
	steady := slices.DeleteFunc(h.answers.list(time.Now(), minShared), func(a problem.Answer) bool { return slices.Contains(h.Addresses, a.Address) })
	return problem.Report{Problems: list, Answers: steady}
}

// Ready reports whether this replica can hold the addresses, and returns its current State. It is ready if its
// interface has a carrier and its peers are known from the Lease or the state file. Ready is safe for concurrent use.
func (h *Holder) Ready() (bool, any) {
	h.mu.Lock()
	ready := h.machine.up && h.machine.leaseKnown
	h.mu.Unlock()
	return ready, h.State()
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	holdingDesc     = desc("xdsd_hold_holding", "Whether this replica has the floating address.")
	transitionsDesc = desc("xdsd_hold_transitions_total", "Moves of the floating address to or from this replica.")
	conflictsDesc   = desc("xdsd_hold_conflicts_total", "Claims of the floating address by other hosts while this replica had it, by peer or stranger.", "by")
)

// Describe implements prometheus.Collector.
func (*Holder) Describe(ch chan<- *prometheus.Desc) {
	ch <- holdingDesc
	ch <- transitionsDesc
	ch <- conflictsDesc
}

// Collect implements prometheus.Collector.
func (h *Holder) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	holding := 0.0
	if h.machine.holding {
		holding = 1
	}
	ch <- prometheus.MustNewConstMetric(holdingDesc, prometheus.GaugeValue, holding)
	ch <- prometheus.MustNewConstMetric(transitionsDesc, prometheus.CounterValue, float64(h.machine.transitions))
	for by, n := range h.machine.conflicts {
		ch <- prometheus.MustNewConstMetric(conflictsDesc, prometheus.CounterValue, float64(n), by)
	}
}
