package doctor

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Status is how a check has ended.
type Status string

// How a check ends.
const (
	Passed  Status = "pass"
	Warned  Status = "warn"
	Failed  Status = "fail"
	Skipped Status = "skip"
	// Broken: the check could not be made, by a fault of its own.
	Broken Status = "error"
)

// Result is how one check has ended.
type Result struct {
	Code   string `json:"code"`
	Title  string `json:"title"`
	Status Status `json:"status"`
	// Reason says why a check was skipped, or what broke it.
	Reason string `json:"reason,omitempty"`
	// BlockedBy is the code of the check that has to pass first: the root of it all.
	BlockedBy string `json:"blockedBy,omitempty"`
	// Inconclusive: it was skipped because something could not be read.
	Inconclusive bool      `json:"inconclusive,omitempty"`
	Findings     []Finding `json:"findings,omitempty"`
	Docs         string    `json:"docs"`
}

// Diagnosis is how all checks of one Infra have ended.
type Diagnosis struct {
	metav1.TypeMeta `json:",inline"`

	Metadata output.Metadata `json:"metadata"`
	// HostedCluster is "namespace/name"; empty for none.
	HostedCluster string   `json:"hostedCluster,omitempty"`
	Results       []Result `json:"results"`
	// Summary counts them by status.
	Summary map[Status]int `json:"summary"`
}

// Diagnose makes the checks, in their order, which has every check after those that it needs.
// Those that selected leaves out are made as well, for the sake of others, and not shown.
func Diagnose(s *Site, checks []Check, selected func(code string) bool) *Diagnosis {
	d := &Diagnosis{
		TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Diagnosis"},
		Metadata: output.Metadata{Name: s.Infra.Name, Namespace: s.Infra.Namespace},
		Results:  []Result{}, Summary: map[Status]int{},
	}
	if hosted := s.hosted(); hosted != nil {
		d.HostedCluster = hosted.Key()
	}
	ended := map[string]Result{}
	for _, c := range checks {
		r := run(s, &c, ended)
		ended[c.Code] = r
		if selected(c.Code) {
			d.Results = append(d.Results, r)
			d.Summary[r.Status]++
		}
	}
	return d
}

// run makes one check.
func run(s *Site, c *Check, ended map[string]Result) (r Result) {
	r = Result{Code: c.Code, Title: c.Title, Status: Passed, Docs: c.Docs()}
	defer func() {
		if p := recover(); p != nil {
			r.Status, r.Reason, r.Findings = Broken, fmt.Sprintf("the check itself is at fault, please report it: %v", p), nil
		}
	}()
	if c.Wanted != nil {
		if r.Reason = c.Wanted(s); r.Reason != "" {
			r.Status = Skipped
			return r
		}
	}
	for _, code := range c.Needs {
		need := ended[code]
		if need.Status == Passed || need.Status == Warned {
			continue
		}
		r.Status, r.BlockedBy, r.Inconclusive = Skipped, code, need.Inconclusive
		if need.Status == Skipped {
			if need.BlockedBy == "" { // there is nothing to check there, or it may not be read
				r.Reason, r.BlockedBy = need.Reason, ""
				return r
			}
			r.BlockedBy = need.BlockedBy
		}
		r.Reason = "blocked by " + r.BlockedBy
		return r
	}
	for _, code := range c.After {
		first := ended[code]
		if r.BlockedBy = first.BlockedBy; first.Status == Failed {
			r.BlockedBy = code
		}
		if r.BlockedBy != "" {
			r.Status, r.Reason = Skipped, "blocked by "+r.BlockedBy
			return r
		}
	}
	if why := s.unread(c.Reads); why != "" {
		r.Status, r.Reason, r.Inconclusive = Skipped, why, true
		return r
	}
	s.reads, s.broken = c.Reads, nil
	if c.Applies != nil {
		if r.Reason = c.Applies(s); r.Reason != "" {
			r.Status = Skipped
			return r
		}
	}
	r.Findings = c.Run(s)
	switch {
	case len(s.broken) > 0:
		r.Status, r.Reason = Broken, strings.Join(s.broken, "; ")
	case slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Fail }):
		r.Status = Failed
	case len(r.Findings) > 0:
		r.Status = Warned
	case len(s.silent) > 0: // nothing is wrong with those that were heard
		r.Status, r.Reason, r.Inconclusive = Skipped, s.silent[0], true
	}
	return r
}
