// Package mutate disables doctor's checks one at a time, for tests that verify that each check finds problems that no
// other finds.
package mutate

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
)

// A Mutant is the result of a diagnosis with one check disabled.
type Mutant struct {
	// Off is the code of the disabled check, Waiting those of the checks that are skipped while it fails.
	Off     string   `json:"off"`
	Waiting []string `json:"waiting,omitempty"`
	// Found are the checks that still find a problem, as "CODE STATUS".
	Found []string `json:"found,omitempty"`
}

// Bundles returns the mutants of bundles that doctor --save wrote, as a JSON object that maps the name of each bundle
// to a list of Mutants. It returns an error if a bundle cannot be read, or does not have exactly one Infra with the name
// demo.
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

// bundle returns a mutant for each check that finds a problem in a bundle.
func bundle(name string) ([]Mutant, error) {
	facts, err := doctor.Load(name, func(string) {})
	if err != nil {
		return nil, err //nolint:wrapcheck // doctor wraps it
	}
	infras := facts.Infras("", "demo")
	if len(infras) != 1 {
		return nil, fmt.Errorf("%s has %d Infras with the name demo; want 1", name, len(infras))
	}
	site, checks := doctor.NewSite(facts, infras[0]), doctor.Checks()
	var mutants []Mutant
	diagnosis := doctor.Diagnose(site, checks, func(string) bool { return true })
	for i := range checks {
		if len(diagnosis.Results[i].Findings) == 0 {
			continue
		}
		m := Mutant{Off: checks[i].Code, Waiting: dependents(checks, checks[i].Code)}
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
