package faults

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mutant is what is found with one check switched off.
type mutant struct {
	Off            string
	Waiting, Found []string
}

// Mutants switches each check off, over the bundles of faults that were tried, and expects that for
// every check there is a fault that nobody finds then: none but checks that wait for it, which say
// what follows, and not why. look is what package mutate says of the bundles that it is given, in
// JSON. It returns the codes that have a fault.
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
	missed := map[string]bool{} // by code, whether a fault is found by nobody else
	for name, list := range mutants {
		fault := bundles[name]
		for _, m := range list {
			wanted := fault.Want
			if s.Node != nil {
				wanted = wanted[:1] // what comes with a root has faults of its own elsewhere
			}
			if slices.ContainsFunc(wanted, func(want string) bool { return strings.HasPrefix(want, strings.TrimPrefix(m.Off, prefix)+" ") }) {
				others := slices.ContainsFunc(m.Found, func(found string) bool {
					code, status, _ := strings.Cut(found, " ")
					// That something was edited by hand says nothing of what fails because of it.
					return !slices.Contains(m.Waiting, code) && (status != "warn" || strings.HasSuffix(fault.Want[0], " warn"))
				})
				missed[m.Off] = missed[m.Off] || !others
			}
		}
	}
	for code, ok := range missed {
		if !ok {
			t.Errorf("with %s switched off, others find each of its faults: it is there for show", code)
		}
	}
	return slices.Sorted(maps.Keys(missed))
}
