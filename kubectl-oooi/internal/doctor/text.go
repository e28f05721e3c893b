package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Show writes a diagnosis as text. If whole is false, it omits checks that passed or were skipped, shows the most severe
// results first, and then inconclusive checks in one line for each reason.
func (d *Diagnosis) Show(w io.Writer, whole bool) error {
	var b strings.Builder
	about := cmp.Or(d.Metadata.Kind, "Infra") + " " + d.Metadata.Namespace + "/" + d.Metadata.Name
	results := slices.Clone(d.Results)
	if !whole { // most important first
		results = slices.DeleteFunc(results, func(r Result) bool { return r.Status == Passed || r.Status == Skipped && !r.Inconclusive })
		slices.SortStableFunc(results, func(a, b Result) int { return rank(a.Status) - rank(b.Status) })
	}
	for i := range results {
		r := &results[i]
		if !whole && r.Status == Skipped {
			b.WriteString(skipLines(results[i:]))
			break
		}
		fmt.Fprintf(&b, "%-5s  %s  %s", r.Status, r.Code, r.Title)
		if r.Reason != "" {
			fmt.Fprintf(&b, ": %s", r.Reason)
		}
		b.WriteString("\n")
		for i, f := range r.Findings {
			fmt.Fprintf(&b, "       %s: %s\n", f.Object, indented(f.Message))
			for _, e := range f.Evidence {
				fmt.Fprintf(&b, "         %s\n", indented(e))
			}
			if i+1 == len(r.Findings) || r.Findings[i+1].Remedy != f.Remedy { // once for all findings that have it
				fmt.Fprintf(&b, "         -> %s\n", f.Remedy)
			}
		}
		if len(r.Findings) > 0 {
			fmt.Fprintf(&b, "       %s\n", r.Docs)
		}
		switch blocked := d.blockedBy(r.Code); {
		case len(blocked) > maxBlocked && !whole:
			fmt.Fprintf(&b, "       blocks %d checks: %s, and others; -o wide names all\n", len(blocked), strings.Join(blocked[:maxBlocked], ", "))
		case len(blocked) > 0:
			fmt.Fprintf(&b, "       blocks: %s\n", strings.Join(blocked, ", "))
		}
	}
	fmt.Fprintf(&b, "%s: %s\n", about, d.summarize())
	_, err := io.WriteString(w, b.String())
	if err != nil {
		return fmt.Errorf("printing the diagnosis: %w", err)
	}
	return nil
}

// indented indents the further lines of a text, such as of an error.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n         ")
}

// maxBlocked is how many blocked checks the short output names.
const maxBlocked = 6

// skipLines returns skipped checks as text, those with the same reason together.
func skipLines(skipped []Result) string {
	var b strings.Builder
	var reasons []string
	byReason := map[string][]*Result{}
	for i := range skipped {
		r := &skipped[i]
		if byReason[r.Reason] == nil {
			reasons = append(reasons, r.Reason)
		}
		byReason[r.Reason] = append(byReason[r.Reason], r)
	}
	for _, reason := range reasons {
		of := byReason[reason]
		if len(of) == 1 {
			fmt.Fprintf(&b, "%-5s  %s  %s: %s\n", Skipped, of[0].Code, of[0].Title, reason)
			continue
		}
		codes := make([]string, len(of))
		for i, r := range of {
			codes[i] = r.Code
		}
		fmt.Fprintf(&b, "%-5s  %d checks: %s\n       %s\n", Skipped, len(of), reason, strings.Join(codes, ", "))
	}
	return b.String()
}

// summarize returns the last line of the text. It counts only problems, so it does not depend on how many checks exist.
func (d *Diagnosis) summarize() string {
	var problems []string
	for _, s := range []struct {
		status    Status
		one, more string
	}{{Failed, "failed", "failed"}, {Broken, "error", "errors"}, {Warned, "warning", "warnings"}} {
		switch n := d.Summary[s.status]; {
		case n == 1:
			problems = append(problems, "1 "+s.one)
		case n > 1:
			problems = append(problems, fmt.Sprintf("%d %s", n, s.more))
		}
	}
	line := "no problems found"
	if len(problems) > 0 {
		line = strings.Join(problems, ", ")
	}
	if slices.ContainsFunc(d.Results, func(r Result) bool { return r.Inconclusive }) {
		line += "; some data could not be read"
	}
	return line
}

// rank returns the position of a status in the output.
func rank(s Status) int { return slices.Index([]Status{Failed, Broken, Warned, Skipped, Passed}, s) }

// blockedBy returns the checks that were skipped because of another.
func (d *Diagnosis) blockedBy(code string) []string {
	var list []string
	for _, r := range d.Results {
		if r.BlockedBy == code {
			list = append(list, r.Code)
		}
	}
	return list
}
