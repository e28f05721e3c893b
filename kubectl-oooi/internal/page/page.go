package page

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

// A section is the part of the page about one site.
type section struct {
	title, summary string
	state          State
	findings       []finding
	// others are the lists of checks and scenarios that did not fail, by their title.
	others map[string]parts
	// image is the image of the test's clients.
	image string
	// drawing returns the drawing and the elements; nil for none.
	drawing func(id string) part
}

// A finding is a check, a scenario or a condition that failed.
type finding struct {
	state       State
	code, text  string
	evidence    []string
	remedy      string
	consequence bool
}

// HTML writes a page about sites, those with failures first.
func HTML(w io.Writer, sites []*Site, version string, now time.Time) error {
	sections := make([]*section, len(sites))
	for i, s := range sites {
		sections[i] = newSection(s)
	}
	slices.SortStableFunc(sections, func(a, b *section) int { return compareStates(a.state, b.state) })
	title, content := several(sections)
	if len(sites) == 1 {
		title, content = sites[0].Title(), sections[0].part("site-0", false)
	}
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n")
	el("html", attr("lang", "en"),
		el("head", el("meta", attr("charset", "utf-8")), el("meta", attr("name", "viewport"), attr("content", "width=device-width, initial-scale=1")),
			el("meta", attr("http-equiv", "Content-Security-Policy"), attr("content", policy)), el("title", text(title)), el("style", styleSheet{})),
		el("body", el("main", el("h1", text(title)), el("p", class("weak"), textf("kubectl oooi %s, %s", version, now.UTC().Format(time.RFC3339))), content)),
	).write(&b)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("printing the page: %w", err)
	}
	return nil
}

// several returns a title, and an index of the sites with failures, their sections, and the folded sections of the others.
func several(sections []*section) (string, part) {
	var index, failed, good parts
	for i, s := range sections {
		id := fmt.Sprintf("site-%d", i)
		if s.state == Good {
			good = append(good, s.part(id, true))
			continue
		}
		item := parts{class(string(s.state)), el("a", attr("href", "#"+id), text(s.title)), text(" "), el("span", class("badge "+string(s.state)), text(s.summary))}
		if len(s.findings) > 0 {
			item = append(item, text(" "+s.findings[0].code+": "+s.findings[0].text))
		}
		index, failed = append(index, el("li", item...)), append(failed, s.part(id, true))
	}
	return fmt.Sprintf("%d of %d sites work", len(good), len(sections)), parts{
		el("nav", attr("aria-label", "Sites with failures"), el("ul", index...)), failed, fold(len(failed) == 0, textf("Sites that work: %d", len(good)), good),
	}
}

func newSection(site *Site) *section {
	s := &section{title: site.Title(), state: Unknown, others: map[string]parts{}}
	if r := site.Status; r != nil {
		s.drawing = NewGraph(site).parts
		if site.Diagnosis == nil {
			s.addStatus(r.Ready.Status, r.Conditions)
		}
	}
	if site.Diagnosis != nil {
		s.addDiagnosis(site.Diagnosis)
	}
	if site.Test != nil {
		s.addTest(site.Test)
	}
	slices.SortStableFunc(s.findings, func(a, b finding) int {
		if a.consequence != b.consequence {
			return map[bool]int{true: 1, false: -1}[a.consequence]
		}
		return compareStates(a.state, b.state)
	})
	return s
}

// addStatus adds the conditions that report a failure.
func (s *section) addStatus(ready metav1.ConditionStatus, conditions []metav1.Condition) {
	s.state, s.summary = stateOf(ready), "Ready: "+string(ready)
	for _, c := range conditions {
		if c.Status == metav1.ConditionFalse && c.Type != v1alpha1.ConditionAppsDomainMismatch {
			s.findings = append(s.findings, finding{state: Bad, code: c.Type, text: c.Reason + ": " + c.Message})
		}
	}
}

// addDiagnosis adds the results of doctor.
func (s *section) addDiagnosis(d *doctor.Diagnosis) {
	for i := range d.Results {
		r := &d.Results[i]
		for _, f := range r.Findings {
			s.findings = append(s.findings, finding{
				severity(f.Severity), r.Code, f.Object.String() + ": " + f.Message, f.Evidence, f.Remedy, f.ConsequenceOf != "",
			})
		}
		switch {
		case r.Status == output.Broken:
			s.findings = append(s.findings, finding{state: Bad, code: r.Code, text: "could not be performed: " + r.Title, evidence: []string{r.Reason}})
		case len(r.Findings) == 0:
			s.addOther("checks", r.Status, r.Code+": "+r.Title, r.Reason, nil)
		}
	}
	failed, warned := d.Summary[output.Failed]+d.Summary[output.Broken], d.Summary[output.Warned]
	switch {
	case failed > 0:
		s.state, s.summary = Bad, fmt.Sprintf("%d of %d checks failed", failed, len(d.Results))
	case warned > 0:
		s.state, s.summary = Warn, fmt.Sprintf("%d of %d checks warn", warned, len(d.Results))
	case d.Summary[output.Skipped] > 0:
		s.summary = "no problems found; some data could not be read"
	default:
		s.state, s.summary = Good, "no problems found"
	}
}

// addTest adds the results of a test.
func (s *section) addTest(r *verify.Report) {
	for i := range r.Results {
		one := &r.Results[i]
		if f := one.Failure(); f != nil {
			s.findings = append(s.findings, finding{Bad, one.Name, f.Message, f.Evidence, f.Remedy, false})
		}
		var requests parts
		for _, q := range one.Requests {
			outcome := cmp.Or(q.Problem, rounded(q.Took.Duration)+strings.TrimSuffix(", "+q.Note, ", "))
			requests = append(requests, el("li", textf("from %s: %s: %s", q.Client, q.Label, outcome)))
		}
		s.addOther("scenarios", one.Status, one.Name+": "+one.Title, one.Reason, requests)
	}
	s.image = r.Image
	s.state, s.summary = Good, fmt.Sprintf("%d scenarios passed", r.Summary[output.Passed])
	if r.Failed() {
		s.state, s.summary = Bad, fmt.Sprintf("%d of %d scenarios failed", r.Summary[output.Failed]+r.Summary[output.Broken], len(r.Results))
	}
}

// addOther adds a check or a scenario to the list of those with the same result.
func (s *section) addOther(kind string, result output.Result, line, reason string, requests parts) {
	if reason != "" {
		line += " (" + reason + ")"
	}
	var item part = text(line)
	if len(requests) > 0 {
		item = fold(false, item, el("ul", requests...))
	}
	title := kind + " " + map[output.Result]string{output.Broken: "not run", output.Failed: "failed", output.Skipped: "skipped", output.Passed: "passed"}[result]
	s.others[title] = append(s.others[title], el("li", item))
}

// part returns the section with an ID. Among several, sites that work are folded.
func (s *section) part(id string, several bool) part {
	var found, consequences parts
	for _, f := range s.findings {
		if f.consequence {
			consequences = append(consequences, f.part(false))
		} else {
			found = append(found, f.part(len(found) == 0))
		}
	}
	content := parts{el("p", class("summary "+string(s.state)), text(cmp.Or(s.summary, "not tested"))), el("ul", found...)}
	if len(consequences) > 0 {
		content = append(content, fold(false, textf("possible consequences: %d", len(consequences)), el("ul", consequences...)))
	}
	if s.drawing != nil {
		content = append(content, s.drawing(id+"-"))
	}
	for _, title := range slices.Sorted(maps.Keys(s.others)) {
		content = append(content, fold(false, textf("%s: %d", title, len(s.others[title])), el("ul", s.others[title]...)))
	}
	if s.image != "" {
		content = append(content, el("p", class("weak"), text("Image of the clients: "+s.image)))
	}
	if several {
		content = parts{fold(s.state != Good, el("h2", text(s.title)), content)}
	}
	return el("section", attr("id", id), attr("aria-label", s.title), content)
}

// part returns the finding, possibly with its evidence unfolded.
func (f *finding) part(open bool) part {
	content := parts{class(string(f.state)), el("p", badge(f.state), el("code", text(f.code)), text(" "+f.text))}
	if f.remedy != "" {
		content = append(content, el("p", class("remedy"), text(f.remedy)))
	}
	var evidence parts
	for _, line := range f.evidence {
		evidence = append(evidence, el("li", text(line)))
	}
	if len(evidence) > 0 {
		content = append(content, fold(open, text("evidence"), el("ul", evidence...)))
	}
	return el("li", content...)
}

// badge returns a state as text; nil for an unknown one.
func badge(s State) part {
	if s == Unknown {
		return nil
	}
	return parts{el("span", class("badge "+string(s)), text(map[State]string{Good: "ok", Warn: "warning", Bad: "failed"}[s])), text(" ")}
}

// parts returns the drawing, and the elements in columns, with the results of their connections, and folded their objects.
func (g *Graph) parts(id string) part {
	var lists [columns]parts
	for i := range g.Nodes {
		n := &g.Nodes[i]
		head := parts{badge(n.State), el("strong", text(n.Title))}
		for _, line := range n.Lines[:min(3, len(n.Lines))] {
			head = append(head, el("span", class("line unknown"), text(line)))
		}
		for _, e := range g.Edges {
			if e.To == n.ID && e.Label != "" {
				head = append(head, el("span", class("line "+string(e.State)), text("from "+g.node(e.From).Title+": "+e.Label)))
			}
		}
		var objects, leases parts
		for _, o := range n.Objects {
			item := el("li", text(o.Kind+" "+o.Name), el("span", class("weak"), text(" "+o.Text)))
			if o.Kind == "Lease" {
				leases = append(leases, item)
			} else {
				objects = append(objects, item)
			}
		}
		content := parts{attr("id", id+n.ID), el("ul", objects...)}
		if len(leases) > 0 {
			content = append(content, fold(len(leases) <= maxNames, textf("Leases: %d", len(leases)), el("ul", leases...)))
		}
		lists[n.column] = append(lists[n.column], el("li", class(string(n.State)), fold(false, head, el("div", content...))))
	}
	elements := parts{class("elements")}
	for i, title := range []string{"Clients", "On the VLAN", "Behind the VLAN"} {
		elements = append(elements, el("div", el("h3", text(title)), el("ul", lists[i]...)))
	}
	return parts{g.draw(id), el("div", elements...)}
}
