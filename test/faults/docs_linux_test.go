package faults_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/lab"
)

// TestKnownFaultsAreInTheCatalogue compares the table of known faults in docs/reference/doctor.md with the
// catalogue: each fault exists under its name and is found by the check.
func TestKnownFaultsAreInTheCatalogue(t *testing.T) {
	text := lab.ReadFile(t, "docs", "reference", "doctor.md")
	_, table, _ := strings.Cut(string(text), "## Known faults of the earlier operator\n")
	table, _, _ = strings.Cut(table, "\n## ")
	named := 0
	for _, m := range regexp.MustCompile(`([A-Z]+-[0-9]+): ((?:"[^"]+"(?:, )?)+)`).FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(m[2], -1) {
			named++
			if !slices.ContainsFunc(slices.Concat(faults.OnAPIServer(), faults.OnRunning(nil), faults.OnNode(), faults.OnFloatingAddress()), func(f faults.Fault) bool {
				return f.Name == name[1] && slices.ContainsFunc(f.Want, func(want string) bool { return strings.HasPrefix(want, m[1]+" ") })
			}) {
				t.Errorf("no fault %q is found by %s", name[1], m[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("the table names only %d faults", named)
	}
}
