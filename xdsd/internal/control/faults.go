package control

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

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

// Faults are the problems of failed actions of control, until they succeed or are no longer due. The zero value is empty and ready
// for use. It is safe for concurrent use.
type Faults struct {
	mu  sync.Mutex
	all map[string]problem.Problem // by action
}

// record records the result of an action, which p describes if it failed. The action is words that each end with a space.
func (f *Faults) record(action string, err error, p problem.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, failed := f.all[action]
	delete(f.all, action)
	if err == nil {
		return
	}
	now := time.Now().UTC().Truncate(time.Second)
	p = p.Because(now.Format(time.RFC3339) + ": " + err.Error())
	if p.Since = now; failed {
		p.Since = before.Since
	}
	if f.all == nil {
		f.all = map[string]problem.Problem{}
	}
	f.all[action] = p
}

// forget removes the actions that begin with these words, except some.
func (f *Faults) forget(words string, except ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.all, func(action string, _ problem.Problem) bool {
		return strings.HasPrefix(action, words) && !slices.Contains(except, action)
	})
}

// problems returns the actions that have failed for long enough.
func (f *Faults) problems(now time.Time) []problem.Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return lasting(now, slices.Collect(maps.Values(f.all)))
}

// statusWriter writes statuses of objects, and records the writes that fail.
type statusWriter struct {
	client client.Client
	faults *Faults
}

// write writes the status of an object like report.Status.
func (w *statusWriter) write(ctx context.Context, kind string, key client.ObjectKey, status any, manager string) error {
	err := report.Status(ctx, w.client, kind, key, status, manager)
	if err == nil || ctx.Err() == nil {
		object := model.Ref{Kind: kind, Namespace: key.Namespace, Name: key.Name}
		w.faults.record(statusAction(kind, key, manager), err, problem.Failed(problem.StatusNotWritten, object, "control cannot write the status, which is outdated"))
	}
	return err
}

// forget removes failed writes that are no longer due: those of a field manager, or all if it is empty.
func (w *statusWriter) forget(kind string, key client.ObjectKey, manager string) {
	w.faults.forget(statusAction(kind, key, manager))
}

func statusAction(kind string, key client.ObjectKey, manager string) string {
	action := "status " + kind + " " + key.String() + " "
	if manager != "" {
		action += manager + " "
	}
	return action
}

// recordLeftovers records whether the objects of an Infra, or with "" of all that need none, could be deleted in a hosted cluster, by
// "namespace/name".
func (f *Faults) recordLeftovers(infra, hosted string, err error) {
	owner := "deleted Infras"
	if infra != "" {
		owner = "Infra " + infra
	}
	f.record("leftovers "+hosted+" "+infra+" ", err,
		problem.Warned(problem.LeftInHostedCluster, model.ParseRef("HostedCluster", hosted), "control cannot delete the objects of %s in the hosted cluster", owner))
}
