package doctor

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// Result is the result of one check.
type Result struct {
	Code   string        `json:"code"`
	Stage  string        `json:"stage"`
	Title  string        `json:"title"`
	Status output.Result `json:"status"`
	// Reason is why the check was skipped or broken.
	Reason   string    `json:"reason,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
	Docs     string    `json:"docs"`
}

// Diagnosis has the results of all checks for a site, in stage order.
type Diagnosis struct {
	metav1.TypeMeta `json:",inline"`

	Metadata output.Metadata       `json:"metadata"`
	Results  []Result              `json:"results"`
	Summary  map[output.Result]int `json:"summary"`
}

// Added is data that a command adds to a site's facts.
type Added struct {
	// Drift are findings about objects that differ from the rendered ones; nil if they were not compared. Undrifted is why comparing failed.
	Drift     []Finding
	Undrifted string
	// Probe are the findings of the probe from the VLAN; nil if none was requested.
	Probe []Finding
}

// Diagnose runs the checks for which selected returns true.
func Diagnose(s *site.Site, added Added, selected func(code string) bool) *Diagnosis {
	d := &Diagnosis{
		TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Diagnosis"},
		Metadata: output.Metadata{Namespace: s.Infra.Namespace, Name: s.Infra.Name}, Summary: map[output.Result]int{},
	}
	if s.Standalone != nil {
		d.Metadata.Kind = s.Ref().Kind
	}
	d.run(&Site{Site: s, reads: Reads(), drift: added.Drift, undrifted: added.Undrifted, probe: added.Probe}, Stages())
	d.Results = slices.DeleteFunc(d.Results, func(r Result) bool { return !selected(r.Code) })
	for i := range d.Results {
		d.Summary[d.Results[i].Status]++
	}
	return d
}

// run runs the checks of all stages.
func (d *Diagnosis) run(s *Site, stages []Stage) {
	roots := map[string]string{} // the check that failed first, by component
	for _, stage := range stages {
		before := len(d.Results)
		for i := range stage.Checks {
			c := &stage.Checks[i]
			if s.Standalone != nil && c.InfraOnly || c.requested != nil && !c.requested(s) {
				continue
			}
			r := run(s, c)
			r.Stage = stage.Name
			for j := range r.Findings {
				f := &r.Findings[j]
				f.ConsequenceOf = rootOf(f.Component, roots)
			}
			d.Results = append(d.Results, r)
		}
		for i := range d.Results[before:] { // checks of one stage do not explain each other
			addRoots(&d.Results[before+i], roots)
		}
	}
}

// run runs one check.
func run(s *Site, c *Check) (r Result) {
	r = Result{Code: c.Code, Title: c.Title, Status: output.Passed, Docs: c.Docs()}
	defer func() {
		if p := recover(); p != nil {
			r.Status, r.Findings = output.Broken, nil
			r.Reason = fmt.Sprintf("the check panicked: %v; this is a bug in doctor, please report it", p)
		}
	}()
	if missing := s.Unread(c.Reads); len(missing) > 0 {
		r.Status, r.Reason = output.Skipped, missing[0]
		return r
	}
	if c.Outdated != nil {
		if r.Reason = c.Outdated(s); r.Reason != "" {
			r.Status = output.Skipped
			return r
		}
	}
	for _, f := range merge(c.Run(s)) {
		if f.Component == "" {
			f.Component = c.Component
		}
		r.Findings = append(r.Findings, f)
	}
	switch {
	case slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Fail }):
		r.Status = output.Failed
	case len(r.Findings) > 0:
		r.Status = output.Warned
	case c.Code == codeDrift && s.undrifted != "":
		r.Status, r.Reason = output.Skipped, s.undrifted
	}
	return r
}

// rootOf returns the check that possibly explains a finding about a component; empty if none does.
func rootOf(component string, roots map[string]string) string {
	if component == componentOther {
		return ""
	}
	for _, c := range append([]string{component}, dependencies[component]...) {
		if roots[c] != "" {
			return roots[c]
		}
	}
	return roots[""]
}

// addRoots adds the failures of a check that are not consequences of others.
func addRoots(r *Result, roots map[string]string) {
	for _, f := range r.Findings {
		if f.Severity == Fail && f.ConsequenceOf == "" && roots[f.Component] == "" && f.Component != componentOther {
			roots[f.Component] = r.Code
		}
	}
}

// merge merges the evidence of findings with the same object and message.
func merge(findings []Finding) []Finding {
	var merged []Finding
	for _, f := range findings {
		at := slices.IndexFunc(merged, func(o Finding) bool {
			return o.Severity == f.Severity && o.Object == f.Object && o.Message == f.Message
		})
		if at < 0 {
			merged = append(merged, f)
			continue
		}
		for _, e := range f.Evidence {
			if !slices.Contains(merged[at].Evidence, e) {
				merged[at] = merged[at].withEvidence(e)
			}
		}
	}
	return merged
}

// Inconclusive returns the results of checks whose data could not be read.
func (d *Diagnosis) Inconclusive() []Result {
	return slices.DeleteFunc(slices.Clone(d.Results), func(r Result) bool { return r.Status != output.Skipped })
}

// Root returns the most severe result that is not a consequence of another; nil if there is none.
func (d *Diagnosis) Root() *Result {
	for _, status := range []output.Result{output.Failed, output.Broken, output.Warned} {
		for i := range d.Results {
			r := &d.Results[i]
			if r.Status == status && !r.isConsequence() {
				return r
			}
		}
	}
	return nil
}

// isConsequence reports whether all findings are possible consequences of failures of earlier stages.
func (r *Result) isConsequence() bool {
	return len(r.Findings) > 0 && !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.ConsequenceOf == "" })
}

// codes returns the codes of results as text.
func codes(results []Result) string {
	var list []string
	for i := range results {
		list = append(list, results[i].Code)
	}
	return strings.Join(list, ", ")
}
