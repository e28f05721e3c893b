package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Show writes a diagnosis as text: root causes first, each with its possible consequences. If whole is false, Show only lists the
// codes of consequences, and omits checks that passed.
func (d *Diagnosis) Show(w io.Writer, whole bool) error {
	var b strings.Builder
	for _, status := range []output.Result{output.Failed, output.Broken, output.Warned} {
		for i := range d.Results {
			if r := &d.Results[i]; r.Status == status && !r.isConsequence() {
				d.showRoot(&b, r, whole)
			}
		}
	}
	b.WriteString(skippedLines(d.Inconclusive()))
	for i := range d.Results {
		if r := &d.Results[i]; whole && r.Status == output.Passed {
			fmt.Fprintf(&b, "%-5s  %s  %s\n", r.Status, r.Code, r.Title)
		}
	}
	fmt.Fprintf(&b, "%s %s/%s: %s\n", cmp.Or(d.Metadata.Kind, "Infra"), d.Metadata.Namespace, d.Metadata.Name, d.summarize())
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("printing the diagnosis: %w", err)
	}
	return nil
}

// showRoot writes the findings of a result that are not consequences of others, and then the consequences of the result's failures.
func (d *Diagnosis) showRoot(b *strings.Builder, r *Result, whole bool) {
	fmt.Fprintf(b, "%-5s  %s  %s", r.Status, r.Code, r.Title)
	if r.Reason != "" {
		fmt.Fprintf(b, ": %s", r.Reason)
	}
	b.WriteString("\n")
	showFindings(b, "       ", slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.ConsequenceOf != "" }))
	fmt.Fprintf(b, "       %s\n", r.Docs)
	var consequences []string
	for i := range d.Results {
		consequence := &d.Results[i]
		findings := slices.DeleteFunc(slices.Clone(consequence.Findings), func(f Finding) bool { return f.ConsequenceOf != r.Code })
		if len(findings) == 0 {
			continue
		}
		consequences = append(consequences, consequence.Code)
		if whole {
			fmt.Fprintf(b, "       possible consequence: %s  %s\n", consequence.Code, consequence.Title)
			showFindings(b, "         ", findings)
		}
	}
	if len(consequences) > 0 && !whole {
		fmt.Fprintf(b, "       possible consequences: %s; -o wide shows them\n", strings.Join(consequences, ", "))
	}
}

// showFindings writes findings with their evidence. Successive findings with the same remedy share it.
func showFindings(b *strings.Builder, indent string, findings []Finding) {
	for i, f := range findings {
		fmt.Fprintf(b, "%s%s: %s\n", indent, f.Object, indented(indent, f.Message))
		for _, e := range f.Evidence {
			fmt.Fprintf(b, "%s  %s\n", indent, indented(indent, e))
		}
		if i+1 == len(findings) || findings[i+1].Remedy != f.Remedy {
			fmt.Fprintf(b, "%s  -> %s\n", indent, f.Remedy)
		}
	}
}

// indented indents the further lines of a text, such as of an error.
func indented(indent, text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  "+indent)
}

// skippedLines returns skipped checks as text, grouped by reason.
func skippedLines(skipped []Result) string {
	var b strings.Builder
	for i := range skipped {
		reason := skipped[i].Reason
		if slices.ContainsFunc(skipped[:i], func(r Result) bool { return r.Reason == reason }) {
			continue
		}
		same := slices.DeleteFunc(slices.Clone(skipped), func(r Result) bool { return r.Reason != reason })
		fmt.Fprintf(&b, "%-5s  %s: %s\n", output.Skipped, codes(same), reason)
	}
	return b.String()
}

// summarize returns the last line of the text. It counts only problems, so that it does not depend on how many checks exist.
func (d *Diagnosis) summarize() string {
	var problems []string
	for _, s := range []struct {
		status           output.Result
		singular, plural string
	}{{output.Failed, "failed", "failed"}, {output.Broken, "error", "errors"}, {output.Warned, "warning", "warnings"}} {
		switch n := d.Summary[s.status]; {
		case n == 1:
			problems = append(problems, "1 "+s.singular)
		case n > 1:
			problems = append(problems, fmt.Sprintf("%d %s", n, s.plural))
		}
	}
	line := "no problems found"
	if len(problems) > 0 {
		line = strings.Join(problems, ", ")
	}
	if d.Summary[output.Skipped] > 0 {
		line += "; some data could not be read"
	}
	return line
}
