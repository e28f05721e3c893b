package doctor

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Status is the result of a check in one word.
type Status string

// Statuses of checks, in the words of the output.
const (
	Passed  Status = "pass"
	Warned  Status = "warn"
	Failed  Status = "fail"
	Skipped Status = "skip"
	// Broken means that the check itself failed: it panicked, read data that it does not declare, or could not
	// decode data.
	Broken Status = "error"
)

// Result is the result of one check.
type Result struct {
	Code   string `json:"code"`
	Title  string `json:"title"`
	Status Status `json:"status"`
	// Reason is why a check was skipped, or the error of a broken one.
	Reason string `json:"reason,omitempty"`
	// BlockedBy is the code of the failed check that blocks this one, empty if none does.
	BlockedBy string `json:"blockedBy,omitempty"`
	// Inconclusive means that the check was skipped because data could not be read.
	Inconclusive bool      `json:"inconclusive,omitempty"`
	Findings     []Finding `json:"findings,omitempty"`
	Docs         string    `json:"docs"`
}

// Diagnosis is the result of all checks of one Infra.
type Diagnosis struct {
	metav1.TypeMeta `json:",inline"`

	Metadata output.Metadata `json:"metadata"`
	// HostedCluster is "namespace/name", empty if there is none.
	HostedCluster string   `json:"hostedCluster,omitempty"`
	Results       []Result `json:"results"`
	// Summary is the number of results by status.
	Summary map[Status]int `json:"summary"`
}

// Diagnose runs the checks in the given order, in which a check must come after those in its Needs and After.
// Checks that are not selected also run, because others may depend on them, but are not in the Diagnosis. It
// must not be called concurrently for the same Site.
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

// blocks reports whether the check failed with a finding that concerns the component of a later one.
func (r Result) blocks(later *Check) bool {
	component := later.component()
	return r.Status == Failed && slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Severity == Fail && (component == "" || f.component == "" || f.component == component)
	})
}

// run runs one check. ended has the results of the earlier ones.
func run(s *Site, c *Check, ended map[string]Result) (r Result) {
	r = Result{Code: c.Code, Title: c.Title, Status: Passed, Docs: c.Docs()}
	defer func() {
		if p := recover(); p != nil {
			r.Status, r.Reason, r.Findings = Broken, fmt.Sprintf("the check panicked: %v; this is a bug in doctor, please report it", p), nil
		}
	}()
	if c.NotRequested != nil {
		if r.Reason = c.NotRequested(s); r.Reason != "" {
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
			if need.BlockedBy == "" { // not applicable, or its data could not be read
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
		if r.BlockedBy = first.BlockedBy; first.blocks(c) {
			r.BlockedBy = code
		}
		if r.BlockedBy != "" {
			r.Status, r.Reason = Skipped, "blocked by "+r.BlockedBy
			return r
		}
	}
	if why := s.unreadReason(c.Reads); why != "" {
		r.Status, r.Reason, r.Inconclusive = Skipped, why, true
		return r
	}
	s.reads, s.checkErrors = c.Reads, nil
	if c.NotApplicable != nil {
		if r.Reason = c.NotApplicable(s); r.Reason != "" {
			r.Status = Skipped
			return r
		}
	}
	r.Findings = c.Run(s)
	switch {
	case len(s.checkErrors) > 0:
		r.Status, r.Reason = Broken, strings.Join(s.checkErrors, "; ")
	case slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Fail }):
		r.Status = Failed
	case len(r.Findings) > 0:
		r.Status = Warned
	case len(s.unanswered) > 0: // no finding for the pods that answered
		r.Status, r.Reason, r.Inconclusive = Skipped, s.unanswered[0], true
	}
	return r
}
