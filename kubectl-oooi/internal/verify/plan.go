package verify

import (
	"encoding/json"
	"strings"

	"github.com/densityops/oooi/internal/probe"
)

// A step is one request of a client for a scenario, with the expected result.
type step struct {
	client Client
	// label describes the request in reports.
	label string
	// index is the request's index in the client's plan.
	index int
	// checks return what is wrong with the outcome; empty if it is as expected. The first problem is reported.
	checks []check
	// note returns a remark about an expected outcome; it may be empty. Nil means none.
	note check
}

// A check returns a text about an outcome, which may be empty.
type check func(*probe.Outcome) string

// answered is a check that accepts any response.
func answered(o *probe.Outcome) string { return o.Error }

// A plan has the steps of scenarios.
type plan struct {
	*subject

	steps map[string][]*step // by scenario
	// why has the reasons for missing steps of scenarios.
	why     map[string][]string
	clients map[Client]*requests
}

// requests are the requests of a client, and their outcomes. Steps with the same request share one.
type requests struct {
	list     []probe.Step
	outcomes []*probe.Outcome
	index    map[string]int // by the encoded request
	err      error
}

// newPlan returns the steps of scenarios at a site.
func newPlan(s *subject, scenarios []Scenario) *plan {
	p := &plan{subject: s, steps: map[string][]*step{}, why: map[string][]string{}, clients: map[Client]*requests{}}
	for i := range scenarios {
		p.steps[scenarios[i].Name] = nil
	}
	for _, c := range both {
		p.clients[c] = &requests{index: map[string]int{}}
	}
	p.addDHCP()
	for _, c := range both {
		p.addDNS(c)
		p.addControlPlane(c)
		p.addApps(c)
	}
	p.addMTU()
	p.addRegistry()
	p.addIsolation()
	return p
}

// add adds a step to a scenario if the scenario is selected.
func (p *plan) add(scenario string, c Client, label string, request probe.Step, checks ...check) *step {
	s := &step{client: c, label: label, checks: checks}
	if _, selected := p.steps[scenario]; !selected {
		return s
	}
	text, err := json.Marshal(request)
	if err != nil {
		panic(err) // all fields can be encoded
	}
	of := p.clients[c]
	at, known := of.index[string(text)]
	if !known {
		at = len(of.list)
		of.index[string(text)] = at
		of.list, of.outcomes = append(of.list, request), append(of.outcomes, nil)
	}
	s.index = at
	p.steps[scenario] = append(p.steps[scenario], s)
	return s
}

// skip records why scenarios with a prefix may lack steps.
func (p *plan) skip(prefix, why string) {
	for scenario := range p.steps {
		if strings.HasPrefix(scenario, prefix) {
			p.why[scenario] = append(p.why[scenario], why)
		}
	}
}
