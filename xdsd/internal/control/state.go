package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/leader"
)

// State is the content of /state. It contains no secrets.
type State struct {
	// Leads reports whether this replica is the leader.
	Leads bool `json:"leads"`
	// Election is the time and the error of the last request for the Lease, empty if it succeeded.
	Election string `json:"election,omitempty"`
	// Store is the state of the watches.
	Store watch.Status `json:"store"`
	// Problems is what control reports about itself, Infras and standalone ProxyServers.
	Problems problem.Report `json:"problems"`
	// Snapshot is the current model; nil before the first one.
	Snapshot *model.Snapshot `json:"snapshot,omitempty"`
}

// A Replica is the state of a replica of control.
type Replica struct {
	// Options are the options passed to New.
	Options

	// Elected is closed when the replica becomes the leader.
	Elected <-chan struct{}

	log problem.Log
}

// Leads reports whether the replica is the leader.
func (r *Replica) Leads() bool {
	select {
	case <-r.Elected:
		return true
	default:
		return false
	}
}

// State returns the current state.
func (r *Replica) State() State {
	return State{Leads: r.Leads(), Election: r.Election.Failure(), Store: r.Store.Status(), Problems: r.Problems(), Snapshot: r.Store.Snapshot()}
}

// Problems returns the problems of the replica and, if it leads, of all Infras and standalone ProxyServers.
func (r *Replica) Problems() problem.Report {
	now := time.Now()
	list := slices.Concat(r.Store.Status().Problems("control"), r.Options.Problems.ofControl(now))
	if !r.Leads() {
		list = append(list, leaderProblems(r.Election, r.Namespace, r.LeaseDuration, now)...)
	}
	return problem.Report{Problems: r.log.Update(now, list), Sites: r.Options.Problems.Sites()}
}

// leaderProblems returns the problem of a Lease that no replica renews, seen by one that does not lead.
func leaderProblems(election *leader.Election, namespace string, duration time.Duration, now time.Time) []problem.Problem {
	holder, renewed := election.LastRenewed()
	if renewed.IsZero() || now.Sub(renewed) < 2*duration {
		return nil
	}
	lease := model.Ref{Kind: "Lease", Namespace: namespace, Name: name}
	p := problem.Failed(problem.NoLeader, lease, "no replica of control leads: no status is written, and the apps address is not reconciled")
	if holder != "" {
		p = p.WithEvidence(fmt.Sprintf("%q holds the Lease and does not renew it", holder))
	}
	if failure := election.Failure(); failure != "" {
		p = p.WithEvidence("Lease " + namespace + "/" + name + ": " + failure)
	}
	p.Since = renewed
	return []problem.Problem{p}
}
