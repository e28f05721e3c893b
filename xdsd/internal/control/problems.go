package control

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/xdsd/internal/report"
)

// minAges are how long some problems must last until they are reported: statuses are written again, kube-proxy applies changes of
// endpoints later, one request may fail, and a floating address moves.
var minAges = map[problem.Code]time.Duration{
	problem.StatusNotWritten: 30 * time.Second, problem.ServiceUnreachable: 20 * time.Second, problem.PodNotAnswering: 5 * time.Second,
	problem.AddressHeldTwice: vlanGrace,
}

// lasting returns the problems that have lasted long enough.
func lasting(now time.Time, problems []problem.Problem) []problem.Problem {
	return slices.DeleteFunc(problems, func(p problem.Problem) bool { return now.Sub(p.Since) < minAges[p.Code] })
}

// Problems are control's failed actions, until they succeed or are no longer due, and the problems of Infras and
// standalone ProxyServers. The zero value is empty and ready for use. It is safe for concurrent use.
type Problems struct {
	observed states[siteState]

	mu     sync.Mutex
	failed map[action]problem.Problem
	sites  map[string][]problem.Problem
}

// action identifies an action by the problem of its failure.
type action struct {
	code   problem.Code
	object model.Ref
}

// record records the result of an action, which p describes if it failed.
func (s *Problems) record(p problem.Problem, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := action{p.Code, p.Object}
	before, failed := s.failed[a]
	delete(s.failed, a)
	if err == nil {
		return
	}
	now := time.Now().UTC().Truncate(time.Second)
	p = p.WithEvidence(now.Format(time.RFC3339) + ": " + err.Error())
	if p.Since = now; failed {
		p.Since = before.Since
	}
	if s.failed == nil {
		s.failed = map[action]problem.Problem{}
	}
	s.failed[a] = p
}

// ofControl returns the actions that have failed for long enough.
func (s *Problems) ofControl(now time.Time) []problem.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lasting(now, slices.Collect(maps.Values(s.failed)))
}

// Sites returns the problems by Infra and standalone ProxyServer, such as "Infra clusters/demo".
func (s *Problems) Sites() map[string][]problem.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.sites)
}

// forget removes an object that does not exist.
func (s *Problems) forget(object model.Ref) {
	_ = s.recordStatus(object, nil)
	s.forgetSite(object)
}

// forgetSite removes the problems of an object that is not observed.
func (s *Problems) forgetSite(object model.Ref) {
	s.observed.forget(object.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sites, object.String())
}

// recordStatus records and returns the error of writing the status of an object; nil if it succeeded or is no longer due.
func (s *Problems) recordStatus(object model.Ref, err error) error {
	s.record(problem.Failed(problem.StatusNotWritten, object, "control cannot write the status, which is outdated"), err)
	return err
}

// recordLeftovers records whether the objects that no Infra needs could be deleted in a hosted cluster, "namespace/name".
func (s *Problems) recordLeftovers(hosted string, err error) {
	s.record(problem.Warned(problem.LeftInHostedCluster, model.ParseRef("HostedCluster", hosted),
		"control cannot delete the objects in the hosted cluster that no Infra needs"), err)
}

// applyChange applies the fields of an object's status that a field manager owns, if they have changed.
func applyChange(ctx context.Context, c client.Client, object model.Ref, before, now any, manager string) (changed bool, err error) {
	if equality.Semantic.DeepEqual(before, now) {
		return false, nil
	}
	return true, report.Status(ctx, c, object.Kind, client.ObjectKey{Namespace: object.Namespace, Name: object.Name}, now, manager)
}
