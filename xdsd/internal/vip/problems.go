package vip

import (
	"fmt"
	"strings"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
)

const (
	// minUnheld is how long the address must be missing, or at a proxy that is not ready: Envoy starts in that time.
	minUnheld = time.Minute
	// minShared is how long two hosts must answer for the address: replicas agree within ten seconds.
	minShared = 15 * time.Second
	// A replica that got or lost the address manyMoves times within movePeriod, the last time within recentMove, is reported.
	manyMoves  = 6
	movePeriod = time.Hour
	recentMove = 10 * time.Minute
	// minLeaseFailure is how long requests to the API server must fail. They are repeated within maxRetry.
	minLeaseFailure = 30 * time.Second
	maxRetry        = 10 * time.Second
)

// problems returns the problems of the floating addresses, for which hosts have answered.
func (m *stateMachine) problems(now time.Time, hosts answers) []problem.Problem {
	var texts []string
	for _, a := range m.addresses {
		texts = append(texts, a.String())
	}
	floating := strings.Join(texts, ", ")
	list := m.shared(now, hosts)
	if since := m.unheldSince(now); !since.IsZero() {
		p := problem.Failed(problem.AddressNotHeld, model.Ref{}, "no proxy replica has the floating address %s: VMs cannot reach the API server", floating)
		if m.holding {
			p = problem.Failed(problem.AddressNotHeld, model.Ref{},
				"the pod has the floating address %s, but its proxy is not ready, and no other replica takes over", floating)
		} else if !m.ready {
			p = p.WithEvidence("the proxy of this replica is not ready")
		}
		p.Since = since
		list = append(list, p)
	}
	if len(m.moves) == manyMoves && now.Sub(m.moves[0]) < movePeriod && now.Sub(m.since) < recentMove {
		list = append(list, problem.Warned(problem.AddressUnstable, model.Ref{}, "the pod got or lost the floating address %d times within %s, the last time at %s",
			manyMoves, m.since.Sub(m.moves[0]).Round(time.Second), m.since.UTC().Format(time.RFC3339)))
	}
	return list
}

// shared returns a problem for each address that several hosts have; one of them may be this replica.
func (m *stateMachine) shared(now time.Time, hosts answers) []problem.Problem {
	var list []problem.Problem
	peers := map[string]string{}
	for address, name := range m.peers() {
		peers[address.String()] = name
	}
	for _, a := range m.addresses {
		var evidence []string
		onlyPeers := true
		for _, h := range hosts.list(now, minShared) {
			if h.Address != a || h.MAC == m.self.String() { // sent back by the network
				continue
			}
			name, peer := peers[h.MAC]
			if !peer {
				name, onlyPeers = "not a proxy replica", false
			}
			evidence = append(evidence, fmt.Sprintf("MAC address %s answers: %s", h.MAC, name))
		}
		if m.holding && now.Sub(m.since) >= minShared {
			evidence = append(evidence, "this pod has the address, with MAC address "+m.self.String())
		}
		if len(evidence) < 2 {
			continue
		}
		p := problem.Failed(problem.AddressHeldTwice, model.Ref{}, "%d hosts have the floating address %s", len(evidence), a).WithEvidence(evidence...)
		if onlyPeers {
			p = p.WithRemedy("see the logs of containers holder, and check that the replicas are on one VLAN")
		}
		list = append(list, p)
	}
	return list
}

// unheldSince returns since when no ready replica has had the address; zero if one has it or that is uncertain.
func (m *stateMachine) unheldSince(now time.Time) time.Time {
	since, certain := m.unansweredSince(), false
	livingHolder := m.lease.holder != "" && m.lease.holder != m.identity && !m.watchingSince.IsZero() && now.Sub(m.leaseChangedAt) < leaseDuration
	switch {
	case m.terminating || !m.up:
	case m.holding:
		since, certain = latest(m.since, m.readySince), !m.ready
	case m.leaseKnown && !livingHolder: // frames of other hosts arrive, so that this replica is not isolated; some ticks may have been late
		certain = since.Equal(m.probesSince) && m.probes >= int(minUnheld/probeInterval)/2 && now.Sub(m.lastFrameAt) < patience
	}
	if !certain || now.Sub(since) < minUnheld {
		return time.Time{}
	}
	return since
}

// A failureSeries are successive failures of requests to the API server.
type failureSeries struct {
	since, last time.Time
	err         string // of the last request; empty if it succeeded
}

// add adds the result of a request.
func (s *failureSeries) add(now time.Time, err error) {
	switch {
	case err == nil:
		*s = failureSeries{}
		return
	case s.since.IsZero() || now.Sub(s.last) > maxRetry:
		s.since = now
	}
	s.last, s.err = now, err.Error()
}

// problems returns the problem of a Lease that cannot be read or written; none if it can, or if that was not tried again.
func (s *failureSeries) problems(now time.Time) []problem.Problem {
	if now.Sub(s.last) > maxRetry || s.last.Sub(s.since) < minLeaseFailure {
		return nil
	}
	p := problem.Warned(problem.LeaseNotRenewable, model.Ref{},
		"the Lease cannot be read or written: probes of the VLAN decide which replica has the floating address").WithEvidence(s.err)
	p.Since = s.since
	return []problem.Problem{p}
}
