package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// holderSays is what 'xdsd hold' says at one instance of the proxy.
type holderSays struct {
	Addresses   []netip.Addr   `json:"addresses"`
	Holding     bool           `json:"holding"`
	Since       time.Time      `json:"since"`
	Transitions int            `json:"transitions"`
	Up          bool           `json:"up"`
	Ready       bool           `json:"ready"`
	Conflicts   map[string]int `json:"conflicts"`
	Failure     string         `json:"failure"`
}

// floatingChecks are about the proxy's address where it has several instances.
func floatingChecks() []Check {
	applies := func(s *Site) string {
		if why := disabled(v1alpha1.ComponentProxy)(s); why != "" {
			return why
		}
		if len(s.Infra.Spec.InfraComponents.Proxy.Instances) == 0 {
			return "the proxy has one replica and no floating address"
		}
		return asks(holderState, AtInfra)(s)
	}
	reads := says(AtInfra, holderState)
	return []Check{
		{
			Code: "OOOI-PRX-015", Title: "each proxy replica reports whether it has the floating address", After: []string{"OOOI-POD-002"}, Reads: reads, Applies: applies,
			Run: mute(AtInfra, holderState),
		},
		{
			Code: "OOOI-PRX-016", Title: "one ready proxy replica has the floating address", After: []string{"OOOI-POD-002"}, Reads: reads, Applies: applies,
			Run: misheld,
		},
		{
			Code: "OOOI-PRX-017", Title: "the floating address is stable", After: []string{"OOOI-POD-002"}, Reads: reads, Applies: applies,
			Run: restlessAddress,
		},
	}
}

// misheld is what is wrong with who has the address.
func misheld(s *Site) []Finding {
	const remedy = "see the logs of the containers 'holder', and the Lease: docs/reference/floating-address.md"
	instances := states[holderSays](s, holderState, AtInfra)
	var holders, evidence []string
	var findings []Finding
	for _, i := range instances {
		if i.is.Holding {
			holders = append(holders, i.pod.Name)
			if !i.is.Ready {
				findings = append(findings, failed(podRef(i.pod), remedy, "it has the floating address %s, its proxy is not ready, and no other replica takes over", commas(i.is.Addresses)))
			}
		}
		evidence = append(evidence, fmt.Sprintf("%s: %s", i.pod.Name, i.is))
	}
	switch {
	case len(holders) > 1:
		findings = append(findings, failed(s.ref(), remedy+"; are they on one VLAN?", "%d proxy replicas have the floating address: %s", len(holders), strings.Join(holders, ", ")).because(evidence...))
	case len(holders) == 0 && len(instances) > 0 && len(s.silent) == 0:
		findings = append(findings, failed(s.ref(), remedy, "none of %d proxy replicas has the floating address: VMs cannot reach the API server", len(instances)).because(evidence...))
	}
	return findings
}

// String is one line.
func (h holderSays) String() string {
	var list []string
	add := func(so bool, yes, no string) {
		if !so {
			yes = no
		}
		if yes != "" {
			list = append(list, yes)
		}
	}
	add(h.Holding, "has it", "has it not")
	add(h.Ready, "", "its proxy is not ready")
	add(h.Up, "", "its interface on the VLAN is down")
	add(h.Failure == "", "", "the Lease cannot be read: "+h.Failure)
	return strings.Join(list, ", ")
}

// An address that comes or goes more often than this is worth a word, when the last time was lately.
const (
	manyTransitions = 6
	lately          = 10 * time.Minute
)

// restlessAddress are signs that the address moves, or that somebody wants it to.
func restlessAddress(s *Site) []Finding {
	var findings []Finding
	for _, i := range states[holderSays](s, holderState, AtInfra) {
		if age := s.facts.Taken.Sub(i.is.Since); i.is.Transitions >= manyTransitions && age < lately {
			findings = append(findings, warned(podRef(i.pod), "see the logs of containers 'holder': the proxy's readiness changes, or the VLAN loses frames",
				"the floating address moved %d times, last %s ago", i.is.Transitions, age.Round(time.Second)))
		}
		if n := i.is.Conflicts["stranger"]; n > 0 {
			findings = append(findings, warned(podRef(i.pod), "find the host by its MAC address in the log of container 'holder', and remove the address from it",
				"a host that is no proxy replica has claimed the floating address %s %d times", commas(i.is.Addresses), n))
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return strings.Compare(a.Object.Name, b.Object.Name) })
	return findings
}
