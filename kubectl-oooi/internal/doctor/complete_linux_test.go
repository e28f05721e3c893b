package doctor_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/lab"
)

// TestEveryCheckIsComplete expects each code to have a check, a section in docs/reference/doctor.md that begins with the
// check's title, and a fault in test/faults that doctor would not find without the check. Checks that need the missing
// one do not count, since they report consequences: the results of all others do not depend on it. The tests that
// create the faults check that doctor finds what they want.
func TestEveryCheckIsComplete(t *testing.T) {
	ordered := orderedChecks(t)
	checks, sections := map[string]*doctor.Check{}, documentedCodes(t)
	for i := range ordered {
		checks[ordered[i].Code] = &ordered[i]
	}
	onAPIServer, onRunning := onlyFinders(ordered, faults.OnAPIServer(), false), onlyFinders(ordered, faults.OnRunning(nil), false)
	onNode, onTwoNodes := onlyFinders(ordered, faults.OnNode(), true), onlyFinders(ordered, faults.OnFloatingAddress(), true)
	codes := slices.AppendSeq(slices.Collect(maps.Keys(checks)), maps.Keys(sections))
	for _, catalogue := range []map[string]bool{onAPIServer, onRunning, onNode, onTwoNodes} {
		codes = slices.AppendSeq(codes, maps.Keys(catalogue))
	}
	slices.Sort(codes)
	for _, code := range slices.Compact(codes) {
		check, section := checks[code], sections[code]
		if check == nil {
			t.Errorf("no check has code %s, which docs/reference/doctor.md or a fault in test/faults names", code)
			continue
		}
		if title := strings.ToUpper(check.Title[:1]) + check.Title[1:] + "."; !strings.HasPrefix(section, title) {
			t.Errorf("docs/reference/doctor.md has no section %s that begins with the check's title, %q", code, title)
		}
		catalogues := []map[string]bool{onAPIServer, onNode}
		if slices.ContainsFunc(check.Reads, func(r doctor.Read) bool { return r.Kind.Kind == "PodProxyOptions" && !r.Optional }) { // pages of pods
			catalogues = []map[string]bool{onRunning, onNode, onTwoNodes}
		}
		found, needed := false, false
		for _, only := range catalogues {
			ok, tried := only[code]
			found, needed = found || tried, needed || ok
		}
		switch {
		case !found:
			t.Errorf("test/faults has no fault that %s finds", code)
		case !needed:
			t.Errorf("other checks find each fault in test/faults that %s finds: it is redundant", code)
		}
	}
}

// documentedCodes returns the sections of docs/reference/doctor.md about checks, by code, without the heading.
func documentedCodes(t *testing.T) map[string]string {
	t.Helper()
	sections := map[string]string{}
	for section := range strings.SplitSeq(string(lab.ReadFile(t, "docs", "reference", "doctor.md")), "\n### OOOI-") {
		if code, text, ok := strings.Cut("OOOI-"+section, "\n\n"); ok && codePattern.MatchString(code) {
			sections[code] = text
		}
	}
	return sections
}

var codePattern = regexp.MustCompile(`^OOOI-[A-Z]{2,4}-[0-9]{3}$`)

// onlyFinders returns, by the code of each check that finds a fault, whether no other check finds one of its faults.
// With onNode, only the first finding of a fault counts, because others have faults of their own elsewhere.
func onlyFinders(checks []doctor.Check, all []faults.Fault, onNode bool) map[string]bool {
	only := map[string]bool{}
	for _, f := range all {
		wanted := f.Want
		if onNode {
			wanted = wanted[:1]
		}
		for _, want := range wanted {
			code := codeOf(want)
			waiting := dependents(checks, code)
			others := slices.ContainsFunc(f.Want, func(other string) bool {
				// A warning, such as about a manual edit, does not report a failure that the edit causes.
				return codeOf(other) != code && !slices.Contains(waiting, codeOf(other)) &&
					(!strings.HasSuffix(other, " warn") || strings.HasSuffix(f.Want[0], " warn"))
			})
			only[code] = only[code] || !others
		}
	}
	return only
}

// codeOf returns the code of the check in "CODE STATUS", in which the prefix of all codes is omitted.
func codeOf(want string) string {
	code, _, _ := strings.Cut(want, " ")
	return "OOOI-" + code
}

// dependents returns the codes of the checks that need a check, directly or indirectly.
func dependents(checks []doctor.Check, code string) []string {
	var list []string
	for i := range checks { // a check comes after those that it needs
		if slices.ContainsFunc(slices.Concat(checks[i].Needs, checks[i].After), func(need string) bool { return need == code || slices.Contains(list, need) }) {
			list = append(list, checks[i].Code)
		}
	}
	return list
}
