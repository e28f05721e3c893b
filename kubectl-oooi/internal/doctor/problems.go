package doctor

import (
	"cmp"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// problemReads are the reads of the problems that daemons and control report.
var problemReads = slices.Concat(site.In(site.AtInfra, site.Pods, site.Problems), site.In(site.AtSystem, site.Pods, site.Problems))

// problemCheck returns the check with a Run that returns the reported problems with the check's code, followed by the findings of the check's own Run.
func problemCheck(c Check) Check {
	c.Reads = append(slices.Clone(problemReads), c.Reads...)
	more := c.Run
	c.Run = func(s *Site) []Finding {
		findings := s.problemFindings(c.Code)
		if more != nil {
			findings = append(findings, more(s)...)
		}
		return findings
	}
	return c
}

// reported is a problem with a component: the component of the pod in question or, for another object, of the pod that reports it.
type reported struct {
	problem.Problem
	component string
}

// problems returns the problems that the site's daemons and control report about the site, without duplicates: control also reports the
// daemons' problems, as it last read them.
func (s *Site) problems() []reported {
	var list []reported
	add := func(p problem.Problem, reporter model.Ref, component string) {
		if p.Object == (model.Ref{}) {
			p.Object = reporter
		}
		known := func(r reported) bool { return r.Code == p.Code && r.Object == p.Object && r.Message == p.Message }
		if !slices.ContainsFunc(list, known) {
			list = append(list, reported{p, cmp.Or(s.podComponent(p.Object), component)})
		}
	}
	for _, a := range s.Responses(site.AtInfra) {
		if a.Report != nil {
			for _, p := range a.Report.Problems {
				add(p, a.PodRef(), s.podComponent(a.PodRef()))
			}
		}
	}
	for _, a := range s.Responses(site.AtSystem) {
		if a.Report == nil {
			continue
		}
		for _, p := range a.Report.Problems {
			add(p, a.PodRef(), componentControl)
		}
		for _, p := range a.Report.Sites[s.Ref().String()] {
			add(p, s.Ref(), "")
		}
	}
	return list
}

// podComponent returns the component of the site's or control's pod; empty for other objects.
func (s *Site) podComponent(ref model.Ref) string {
	if ref.Kind != site.Pods.Kind {
		return ""
	}
	for _, p := range slices.Concat(s.componentPods(), s.ControlPods()) {
		if p.Namespace == ref.Namespace && p.Name == ref.Name {
			return p.Labels[v1alpha1.LabelComponent]
		}
	}
	return ""
}

// problemFindings returns the problems of the kinds with the code of a check.
func (s *Site) problemFindings(check string) []Finding {
	var findings []Finding
	for _, p := range s.problems() {
		if p.Code.Kind().Check != check {
			continue
		}
		f := Finding{
			Severity: Severity(p.Severity), Object: p.Object, Component: p.component, Message: p.Message, Evidence: p.Evidence,
			Remedy: p.Advice(),
		}
		if !p.Since.IsZero() {
			f = f.withEvidence("since " + formatTime(p.Since))
		}
		findings = append(findings, f)
	}
	return findings
}

// hasProblem reports whether a daemon reports a problem with a code, so that a check prints it.
func (s *Site) hasProblem(code string) bool {
	return slices.ContainsFunc(s.problems(), func(p reported) bool { return string(p.Code) == code })
}
