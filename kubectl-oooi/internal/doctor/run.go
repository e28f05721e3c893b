package doctor

import (
	"cmp"
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

	// causes has the failed checks, this one or earlier ones, that explain failures of each component in checks that
	// depend on this one.
	causes map[string]string
	// consequent is set if all findings are explained by earlier checks.
	consequent bool
	// unrelated is set if the check does not apply to a proxy without an Infra. Checks that need it run.
	unrelated bool
}

// Diagnosis is the result of all checks of one Infra or standalone ProxyServer.
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
	if s.Standalone != nil {
		d.Metadata.Kind = s.ref().Kind
	}
	if hosted := s.hosted(); hosted != nil {
		d.HostedCluster = hosted.Key()
	}
	ended := map[string]Result{}
	for _, c := range checks {
		r := run(s, &c, ended)
		ended[c.Code] = r
		if selected(c.Code) {
			if s.Standalone != nil {
				r.renameInfra()
			}
			d.Results = append(d.Results, r)
			d.Summary[r.Status]++
		}
	}
	return d
}

// renameInfra changes the texts, which are written for an Infra, for a standalone ProxyServer.
func (r *Result) renameInfra() {
	rename := strings.NewReplacer(
		"networkAttachmentDefinition of the Infra", "networkAttachmentName of the ProxyServer",
		"add replicas in the Infra", "use an Infra with infraComponents.proxy.instances for several replicas",
		"the Infra", "the ProxyServer",
	).Replace
	if r.unrelated {
		return
	}
	r.Title, r.Reason = rename(r.Title), rename(r.Reason)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Message, f.Remedy = rename(f.Message), rename(f.Remedy)
	}
}

// allComponents is the key of causes for failures that concern every component.
const allComponents = ""

// inherit adds the causes of an earlier result in the scopes that are selected. The cause that was found first is kept.
func (r *Result) inherit(earlier Result, selected func(scope string) bool) {
	for scope, code := range earlier.causes {
		if selected(scope) {
			r.addCause(scope, code)
		}
	}
}

func (r *Result) addCause(component, code string) {
	if r.causes == nil {
		r.causes = map[string]string{}
	}
	if r.causes[component] == "" {
		r.causes[component] = code
	}
}

// cause returns the failed check that explains failures of a component, empty if none does.
func (r *Result) cause(component string) string {
	if code := r.causes[allComponents]; code != "" {
		return code
	}
	return r.causes[component]
}

// concerns reports whether an earlier failure concerns a check of a component: of one of several components, if it is about
// all of them, but not if the failures are limited to parts of a component.
func (r *Result) concerns(component string) bool {
	if component != allComponents {
		return r.cause(component) != ""
	}
	for scope := range r.causes {
		if !isPart(scope) {
			return true
		}
	}
	return false
}

// mergeEqual merges the evidence of findings with the same object and message.
func mergeEqual(findings []Finding) []Finding {
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
				merged[at].Evidence = append(slices.Clip(merged[at].Evidence), e)
			}
		}
	}
	return merged
}

// block skips a check because of an earlier one.
func (r *Result) block(code string) {
	r.Status, r.BlockedBy, r.Reason = Skipped, code, "blocked by "+code
}

// run runs one check. ended has the results of the earlier ones.
func run(s *Site, c *Check, ended map[string]Result) (r Result) {
	r = Result{Code: c.Code, Title: c.Title, Status: Passed, Docs: c.Docs()}
	defer func() {
		if p := recover(); p != nil {
			r.Status, r.Reason, r.Findings = Broken, fmt.Sprintf("the check panicked: %v; this is a bug in doctor, please report it", p), nil
		}
	}()
	if s.Standalone != nil && !c.ofProxy() {
		r.Status, r.Reason, r.unrelated = Skipped, "the proxy has no Infra", true
		return r
	}
	if c.NotRequested != nil {
		if r.Reason = c.NotRequested(s); r.Reason != "" {
			r.Status = Skipped
			return r
		}
	}
	for _, code := range slices.Concat(c.Needs, c.After) {
		r.inherit(ended[code], func(string) bool { return true })
	}
	for _, code := range c.AfterParts {
		r.inherit(ended[code], isPart)
	}
	component := c.component()
	for _, code := range c.Needs {
		switch need := ended[code]; {
		case need.unrelated || need.Status == Passed || need.Status == Warned:
		case (need.Status == Failed || need.consequent) && !r.concerns(component): // fails for others
		case need.Status == Skipped && need.BlockedBy == "": // not applicable, or its data could not be read
			r.Status, r.Reason, r.Inconclusive = Skipped, need.Reason, need.Inconclusive
			return r
		default:
			r.block(cmp.Or(need.BlockedBy, code))
			return r
		}
	}
	cause := r.cause(component)
	if cause == "" && c.Backend != nil {
		cause = r.causes[upstreamScope(c.Backend(s))]
	}
	if cause != "" {
		r.block(cause)
		return r
	}
	if why := s.unreadReason(c.Reads); why != "" {
		r.Status, r.Reason, r.Inconclusive = Skipped, why, true
		return r
	}
	s.reads, s.checkErrors, s.explained = c.Reads, nil, r.causes
	if c.NotApplicable != nil {
		if r.Reason = c.NotApplicable(s); r.Reason != "" {
			r.Status = Skipped
			return r
		}
	}
	found := c.Run(s)
	r.Findings = slices.DeleteFunc(slices.Clone(found), func(f Finding) bool { return r.cause(f.component) != "" })
	for _, f := range r.Findings {
		if f.Severity == Fail {
			r.addCause(f.component, c.Code)
		}
	}
	r.Findings = mergeEqual(r.Findings)
	switch {
	case len(s.checkErrors) > 0:
		r.Status, r.Reason = Broken, strings.Join(s.checkErrors, "; ")
	case slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Fail }):
		r.Status = Failed
	case len(r.Findings) > 0:
		r.Status = Warned
	case len(found) > 0: // consequences only
		r.consequent = true
		r.block(r.cause(found[0].component))
	case len(s.unanswered) > 0: // no finding for the pods that answered
		r.Status, r.Reason, r.Inconclusive = Skipped, s.unanswered[0], true
	}
	return r
}
