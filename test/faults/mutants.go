package faults

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mutant is what doctor finds in a bundle with one check disabled, in the JSON of package mutate.
type mutant struct {
	Off            string
	Waiting, Found []string
}

// Mutants disables each check in turn on the bundles of the faults that were tried. It expects that for each
// check there is a fault that no other check finds. Checks that need the disabled one do not count, since they
// report consequences. look returns the JSON of package mutate for bundles. Mutants returns the codes that find
// a fault.
func (s *Site) Mutants(t *testing.T, all []Fault, look func(bundles []string) []byte) []string {
	t.Helper()
	bundles := map[string]*Fault{}
	for i := range all {
		bundles[filepath.Join(s.Bundles, fileName(all[i].Name))] = &all[i]
	}
	var mutants map[string][]mutant
	if err := json.Unmarshal(look(slices.Sorted(maps.Keys(bundles))), &mutants); err != nil {
		t.Fatal(err)
	}
	missed := map[string]bool{} // by code, whether no other check finds one of its faults
	for name, list := range mutants {
		fault := bundles[name]
		for _, m := range list {
			wanted := fault.Want
			if s.Node != nil {
				wanted = wanted[:1] // other findings are covered by faults of their own elsewhere
			}
			if slices.ContainsFunc(wanted, func(want string) bool { return strings.HasPrefix(want, strings.TrimPrefix(m.Off, codePrefix)+" ") }) {
				others := slices.ContainsFunc(m.Found, func(found string) bool {
					code, status, _ := strings.Cut(found, " ")
					// A warning, such as about a manual edit, does not report a failure that the edit causes.
					return !slices.Contains(m.Waiting, code) && (status != "warn" || strings.HasSuffix(fault.Want[0], " warn"))
				})
				missed[m.Off] = missed[m.Off] || !others
			}
		}
	}
	for code, ok := range missed {
		if !ok {
			t.Errorf("with %s disabled, other checks find each of its faults: it is redundant", code)
		}
	}
	return slices.Sorted(maps.Keys(missed))
}
