package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/test/faults"
)

// TestEveryCheckIsNeeded checks that the catalogue has faults for each check, and that without the check doctor would
// find nothing for one of them. Checks that need the missing one do not count, since they report consequences: the
// results of all others do not depend on it. The tests that make the faults check that doctor finds what they want.
func TestEveryCheckIsNeeded(t *testing.T) {
	checks := orderedChecks(t)
	onAPIServer, onRunning := onlyFinders(checks, faults.OnAPIServer(), false), onlyFinders(checks, faults.OnRunning(nil), false)
	onNode, onTwoNodes := onlyFinders(checks, faults.OnNode(), true), onlyFinders(checks, faults.OnFloatingAddress(), true)
	for i := range checks {
		code := checks[i].Code
		catalogues := []map[string]bool{onAPIServer, onNode}
		if checks[i].ReadsPages() {
			catalogues = []map[string]bool{onRunning, onTwoNodes}
		}
		found, needed := false, false
		for _, only := range catalogues {
			ok, tried := only[code]
			found, needed = found || tried, needed || ok
		}
		switch {
		case !found:
			t.Errorf("no fault is found by %s", code)
		case !needed:
			t.Errorf("without %s, other checks find each of its faults: it is redundant", code)
		}
	}
}

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
