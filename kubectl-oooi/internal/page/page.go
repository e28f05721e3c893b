package page

import (
	_ "embed" // the template
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

//go:embed page.html
var source string

// htmlPage has no script, and no resource other than itself.
var htmlPage = template.Must(template.New("page").Funcs(template.FuncMap{"rounded": rounded, "state": stateOfResult}).Parse(source))

// A finding is a failed scenario or check.
type finding struct {
	Status   output.Result
	State    State
	Name     string
	Title    string
	Evidence []string
	Remedy   string
}

// A section is the part of the page about one site.
type section struct {
	ID, Title, Summary string
	State              State
	Drawing            *Drawing
	Elements           []Node
	Failures           []finding
	Test               *verify.Report
}

// HTML writes a page about sites.
func HTML(w io.Writer, sites []*Site, version string, now time.Time) error {
	content := struct {
		Title, Version, Time string
		Sites                []section
	}{Title: fmt.Sprintf("%d sites", len(sites)), Version: version, Time: now.UTC().Format(time.RFC3339)}
	if len(sites) == 1 {
		content.Title = sites[0].Title()
	}
	for i, s := range sites {
		content.Sites = append(content.Sites, newSection(s, i))
	}
	if err := htmlPage.Execute(w, content); err != nil {
		return fmt.Errorf("printing the page: %w", err)
	}
	return nil
}

func newSection(s *Site, index int) section {
	out := section{ID: fmt.Sprintf("site-%d", index), Title: s.Title(), State: Unknown, Summary: "not tested", Test: s.Test}
	if s.Status != nil {
		graph := NewGraph(s)
		out.Drawing, out.Elements = graph.Draw(), graph.Nodes
		out.State, out.Summary = stateOf(s.Status.Ready.Status), "Ready: "+string(s.Status.Ready.Status)
	}
	if s.Diagnosis != nil {
		out.addDiagnosis(s.Diagnosis)
	}
	if s.Test != nil {
		out.addTest(s.Test)
	}
	return out
}

// addDiagnosis adds the findings of doctor.
func (s *section) addDiagnosis(d *doctor.Diagnosis) {
	s.State, s.Summary = Good, "no problems found"
	if n := d.Summary[output.Failed] + d.Summary[output.Broken]; n > 0 {
		s.State, s.Summary = Bad, fmt.Sprintf("%d checks failed", n)
	} else if n := d.Summary[output.Warned]; n > 0 {
		s.State, s.Summary = Unknown, fmt.Sprintf("%d warnings", n)
	}
	for i := range d.Results {
		r := &d.Results[i]
		for _, f := range r.Findings {
			s.Failures = append(s.Failures, finding{
				Status: r.Status, State: stateOfResult(r.Status), Name: r.Code, Title: f.Object.String() + ": " + f.Message, Evidence: f.Evidence, Remedy: f.Remedy,
			})
		}
	}
}

// addTest adds the scenarios that failed or did not run.
func (s *section) addTest(r *verify.Report) {
	s.State, s.Summary = Good, fmt.Sprintf("%d scenarios passed", r.Summary[output.Passed])
	if r.Failed() {
		s.State, s.Summary = Bad, fmt.Sprintf("%d of %d scenarios failed", r.Summary[output.Failed], len(r.Results))
		if n := r.Summary[output.Broken]; n > 0 {
			s.Summary += fmt.Sprintf(", and %d did not run", n)
		}
	}
	for i := range r.Results {
		one := &r.Results[i]
		if f := one.Failure(); f != nil {
			s.Failures = append(s.Failures, finding{Status: one.Status, State: Bad, Name: one.Name, Title: f.Message, Evidence: f.Evidence, Remedy: f.Remedy})
		}
	}
}

func stateOfResult(r output.Result) State {
	switch r {
	case output.Passed:
		return Good
	case output.Failed, output.Broken:
		return Bad
	default:
		return Unknown
	}
}
