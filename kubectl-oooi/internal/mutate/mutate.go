// Package mutate switches doctor's checks off, one after the other, for the tests that hold that
// none of them is there for show.
package mutate

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
)

// Mutant is what is found in a bundle with one check switched off, which then finds nothing.
type Mutant struct {
	// Off is its code, Waiting those of the checks that are not made while it fails.
	Off     string   `json:"off"`
	Waiting []string `json:"waiting,omitempty"`
	// Found are the checks that find something all the same, by code and status.
	Found []string `json:"found,omitempty"`
}

// Bundles is what mutants find in what --save has written about Infras that are named demo: a JSON
// object of lists, by the names of the bundles.
func Bundles(names []string) ([]byte, error) {
	all := map[string][]Mutant{}
	for _, name := range names {
		mutants, err := bundle(name)
		if err != nil {
			return nil, err
		}
		all[name] = mutants
	}
	data, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encoding mutants: %w", err)
	}
	return data, nil
}

// bundle makes a mutant of each check that finds something, and has it look.
func bundle(name string) ([]Mutant, error) {
	facts, err := doctor.Load(name, func(string) {})
	if err != nil {
		return nil, err //nolint:wrapcheck // it is ours
	}
	infras := facts.Infras("", "demo")
	if len(infras) != 1 {
		return nil, fmt.Errorf("%s has %d Infras of the name demo", name, len(infras))
	}
	site, checks := doctor.NewSite(facts, infras[0]), doctor.Checks()
	var mutants []Mutant
	whole := doctor.Diagnose(site, checks, func(string) bool { return true })
	for i := range checks {
		if len(whole.Results[i].Findings) == 0 {
			continue
		}
		m := Mutant{Off: checks[i].Code, Waiting: waiting(checks, checks[i].Code)}
		mutated := slices.Clone(checks)
		mutated[i].Run = func(*doctor.Site) []doctor.Finding { return nil }
		d := doctor.Diagnose(site, mutated, func(string) bool { return true })
		for _, r := range d.Results {
			if r.Status != doctor.Passed && r.Status != doctor.Skipped {
				m.Found = append(m.Found, r.Code+" "+string(r.Status))
			}
		}
		mutants = append(mutants, m)
	}
	return mutants, nil
}

// waiting are the checks that need one, directly or by others.
func waiting(checks []doctor.Check, code string) []string {
	var list []string
	for i := range checks { // what others need comes before them
		if slices.ContainsFunc(slices.Concat(checks[i].Needs, checks[i].After), func(need string) bool { return need == code || slices.Contains(list, need) }) {
			list = append(list, checks[i].Code)
		}
	}
	return list
}
