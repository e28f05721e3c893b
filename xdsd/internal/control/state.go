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
	// StatusFailures are the statuses that could not be written; empty on replicas that do not lead.
	StatusFailures []StatusFailure `json:"statusFailures"`
	// Services are the cluster IPs of proxies that accept no connections; empty on replicas that do not lead.
	Services []SilentService `json:"services"`
	// Remains are the leftovers in hosted clusters; empty on replicas that do not lead.
	Remains []Leftover `json:"remains"`
	// Snapshot is the current model; nil before the first one.
	Snapshot *model.Snapshot `json:"snapshot,omitempty"`
}

// A Replica is what a replica of control knows.
type Replica struct {
	// Options are those of New.
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
	return State{
		Leads: r.Leads(), Election: r.Election.Failure(), Store: r.Store.Status(), StatusFailures: r.Statuses.List(),
		Services: r.Services.List(), Remains: r.Leftovers.List(), Snapshot: r.Store.Snapshot(),
	}
}

const (
	// minStatusFailure is how long a status cannot be written until that is a problem: requests are repeated.
	minStatusFailure = 30 * time.Second
	// minServiceFailure is how long a Service accepts no connections until that is a problem: kube-proxy applies changes of
	// endpoints later.
	minServiceFailure = 20 * time.Second
)

// Problems returns the problems of the replica and, if it leads, of all Infras and standalone ProxyServers.
func (r *Replica) Problems() problem.Report {
	now := time.Now()
	sites, list := r.Sites.List()
	list = slices.Concat(list, r.Store.Status().Problems("control"), statusProblems(r.Statuses.List(), now), serviceProblems(r.Services.List(), now), leftoverProblems(r.Leftovers.List()))
	if !r.Leads() {
		list = append(list, leaderProblems(r.Election, r.Namespace, r.LeaseDuration, now)...)
	}
	return problem.Report{Problems: r.log.Update(now, list), Sites: sites}
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
		p = p.Because(fmt.Sprintf("%q holds the Lease and does not renew it", holder))
	}
	if failure := election.Failure(); failure != "" {
		p = p.Because("Lease " + namespace + "/" + name + ": " + failure)
	}
	p.Since = renewed
	return []problem.Problem{p}
}

// statusProblems returns the problems of statuses that cannot be written.
func statusProblems(failures []StatusFailure, now time.Time) []problem.Problem {
	var list []problem.Problem
	for _, f := range failures {
		if now.Sub(f.Since) < minStatusFailure {
			continue
		}
		p := problem.Failed(problem.StatusNotWritten, model.Ref{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}, "control cannot write the status, which is outdated").
			Because(f.At.Format(time.RFC3339) + ": " + f.Error)
		p.Since = f.Since
		list = append(list, p)
	}
	return list
}

// serviceProblems returns the problems of proxies' Services that accept no connections.
func serviceProblems(services []SilentService, now time.Time) []problem.Problem {
	var list []problem.Problem
	for _, s := range services {
		if now.Sub(s.Since) < minServiceFailure {
			continue
		}
		p := problem.Failed(problem.ServiceUnreachable, model.ParseRef("Service", s.Infra+"-proxy"),
			"cluster IP %s accepts no connections from the node of control: kube-proxy or the network plugin does not forward them, and pods cannot reach the hosted control plane", s.Address).Because(s.Error)
		p.Since = s.Since
		list = append(list, p)
	}
	return list
}

// leftoverProblems returns the problems of objects of Infras that cannot be deleted in hosted clusters.
func leftoverProblems(leftovers []Leftover) []problem.Problem {
	var list []problem.Problem
	for _, l := range leftovers {
		owner := "deleted Infras"
		if l.Infra != "" {
			owner = "Infra " + l.Infra
		}
		list = append(list, problem.Warned(problem.LeftInHostedCluster, model.ParseRef("HostedCluster", l.HostedCluster), "control cannot delete the objects of %s in the hosted cluster", owner).Because(l.Error))
	}
	return list
}
