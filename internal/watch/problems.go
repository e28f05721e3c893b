package watch

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
)

const (
	// MaxStaleness is how long a daemon may be without a watch. A daemon restarts a watch immediately when it ends.
	MaxStaleness = 30 * time.Second
	// maxOutdated is how long the configuration file may differ from the one that was loaded: setup changes it shortly before it
	// replaces the pods, one at a time.
	maxOutdated = 10 * time.Minute
)

// Problems returns the problems of the store of a daemon: data that is not current, objects that are kept although they
// disappeared, and a snapshot file that cannot be written. They are about the daemon's pod, so that their Object is empty.
func (s Status) Problems(daemon string) []problem.Problem {
	var list []problem.Problem
	if p := s.staleProblem(daemon); p != nil {
		list = append(list, *p)
	}
	return append(append(list, KeptProblems(daemon, s.Resources)...), SnapshotProblems(daemon, s.SnapshotFailure)...)
}

// staleProblem returns the problem of data that is not current; nil if it is, or if the daemon has just started.
func (s Status) staleProblem(daemon string) *problem.Problem {
	if s.At.Sub(s.Started) < MaxStaleness {
		return nil
	}
	age := s.Age()
	var evidence []string
	for i := range s.Resources {
		r := &s.Resources[i]
		if !r.Connected && !r.Missing && r.Error != "" && s.At.Sub(r.LastSeen) > MaxStaleness {
			evidence = append(evidence, r.describe()+": "+r.Error)
		}
	}
	var p problem.Problem
	switch {
	case !s.Synced:
		p = problem.Warned(problem.DataStale, model.Ref{}, "%s has not read all objects from the API server since it started, and uses its snapshot file", daemon)
	case age > MaxStaleness:
		p = problem.Warned(problem.DataStale, model.Ref{}, "%s does not receive updates from the API server: its data is %s old", daemon, age.Round(time.Second))
	case len(evidence) > 0:
		p = problem.Warned(problem.DataStale, model.Ref{}, "%s does not receive updates of some objects from the API server", daemon)
	default:
		return nil
	}
	p = WithDeniedRight(p.WithEvidence(evidence...))
	return &p
}

// deniedRight is the right in an error of the API server.
var deniedRight = regexp.MustCompile(`User "\S+" cannot [^:\n]*`)

// WithDeniedRight returns a problem whose remedy restores the first right that the API server denies according to the evidence. If
// it denies none, the problem is unchanged.
func WithDeniedRight(p problem.Problem) problem.Problem {
	if right := deniedRight.FindString(strings.Join(p.Evidence, "\n")); right != "" {
		return p.WithRemedy("restore the Role and RoleBinding with 'kubectl oooi setup -f FILE --force-conflicts': %s", right)
	}
	return p
}

// describe returns the resource and the namespace or name to which a watch is limited.
func (r *ResourceStatus) describe() string {
	if where := strings.Trim(r.Namespace+"/"+r.Name, "/"); where != "" {
		return r.Resource + " in " + where
	}
	return r.Resource
}

// KeptProblems returns the problem of objects that disappeared from the API server and that a daemon still uses;
// empty without any.
func KeptProblems(daemon string, resources []ResourceStatus) []problem.Problem {
	var evidence []string
	for i := range resources {
		r := &resources[i]
		if r.Kept == nil {
			continue
		}
		text := fmt.Sprintf("%s: %d", r.Resource, r.Kept.Objects)
		if len(r.Kept.Names) > 0 {
			text += ", such as " + r.Kept.Names[0]
		}
		if !r.Kept.Until.IsZero() {
			text += ", until " + r.Kept.Until.UTC().Format(time.RFC3339)
		}
		evidence = append(evidence, text)
	}
	if evidence == nil {
		return nil
	}
	kept := problem.Warned(problem.ObjectsKept, model.Ref{}, "%s uses objects that disappeared from the API server", daemon)
	return []problem.Problem{kept.WithEvidence(evidence...)}
}

// SnapshotProblems returns the problem of a snapshot file that a daemon cannot write, by the error of the last write; none if
// it is empty.
func SnapshotProblems(daemon, failure string) []problem.Problem {
	if failure == "" {
		return nil
	}
	return []problem.Problem{problem.Warned(problem.SnapshotNotWritten, model.Ref{},
		"%s cannot write its snapshot file, so it starts without data if it restarts while the API server is unavailable", daemon).WithEvidence(failure)}
}

// OutdatedProblems returns the problem of a configuration file that a daemon has not loaded since it was changed; none if that is
// less than ten minutes ago.
func OutdatedProblems(daemon, path string, changed, now time.Time) []problem.Problem {
	if now.Sub(changed) < maxOutdated {
		return nil
	}
	p := problem.Warned(problem.ConfigurationOutdated, model.Ref{}, "%s runs a configuration that differs from %s", daemon, path)
	p.Since = changed
	return []problem.Problem{p}
}
