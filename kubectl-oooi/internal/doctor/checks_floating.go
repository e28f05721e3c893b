package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// holderReport has the fields of the state page of 'xdsd hold' that checks read.
type holderReport struct {
	Addresses   []netip.Addr   `json:"addresses"`
	Holding     bool           `json:"holding"`
	Since       time.Time      `json:"since"`
	Transitions int            `json:"transitions"`
	Up          bool           `json:"up"`
	Ready       bool           `json:"ready"`
	Conflicts   map[string]int `json:"conflicts"`
	Failure     string         `json:"failure"`
}

// floatingChecks returns the checks of the floating address, for a proxy with several replicas.
func floatingChecks() []Check {
	notApplicable := func(s *Site) string {
		if why := disabled(v1alpha1.ComponentProxy)(s); why != "" {
			return why
		}
		if len(s.Infra.Spec.InfraComponents.Proxy.Instances) == 0 {
			return "the proxy has one replica and no floating address"
		}
		return noPods(holderState, AtInfra)(s)
	}
	reads := pagesIn(AtInfra, holderState)
	return []Check{
		{
			Code: "OOOI-PRX-015", Title: "each proxy replica reports whether it has the floating address", After: []string{"OOOI-POD-002"}, Reads: reads, NotApplicable: notApplicable,
			Run: checkPages(AtInfra, holderState),
		},
		{
			Code: "OOOI-PRX-016", Title: "one ready proxy replica has the floating address", After: []string{"OOOI-POD-002"}, Reads: reads, NotApplicable: notApplicable,
			Run: checkHolder,
		},
		{
			Code: "OOOI-PRX-017", Title: "the floating address is stable", After: []string{"OOOI-POD-002"}, Reads: reads, NotApplicable: notApplicable,
			Run: checkAddressMoves,
		},
	}
}

// checkHolder finds a floating address that is held by no replica, by several, or by one whose proxy is not
// ready.
func checkHolder(s *Site) []Finding {
	const remedy = "see the logs of containers 'holder', and the Lease: docs/reference/floating-address.md"
	instances := states[holderReport](s, holderState, AtInfra)
	var holders, evidence []string
	var findings []Finding
	for _, i := range instances {
		if i.value.Holding {
			holders = append(holders, i.pod.Name)
			if !i.value.Ready {
				findings = append(findings, failed(podRef(i.pod), remedy, "the pod has the floating address %s, but its proxy is not ready, and no other replica takes over", joinAddresses(i.value.Addresses)))
			}
		}
		evidence = append(evidence, fmt.Sprintf("%s: %s", i.pod.Name, i.value))
	}
	switch {
	case len(holders) > 1:
		findings = append(findings, failed(s.ref(), remedy+"; check that the replicas are on one VLAN", "%d proxy replicas have the floating address: %s", len(holders), strings.Join(holders, ", ")).because(evidence...))
	case len(holders) == 0 && len(instances) > 0 && len(s.unanswered) == 0:
		findings = append(findings, failed(s.ref(), remedy, "none of %d proxy replicas has the floating address: VMs cannot reach the API server", len(instances)).because(evidence...))
	}
	return findings
}

// String returns the state in one line, as evidence.
func (h holderReport) String() string {
	var list []string
	add := func(condition bool, text, otherwise string) {
		if !condition {
			text = otherwise
		}
		if text != "" {
			list = append(list, text)
		}
	}
	add(h.Holding, "has the address", "does not have the address")
	add(h.Ready, "", "its proxy is not ready")
	add(h.Up, "", "its interface on the VLAN is down")
	add(h.Failure == "", "", "the Lease cannot be read: "+h.Failure)
	return strings.Join(list, ", ")
}

// A replica is reported if it got or lost the address at least manyTransitions times, the last time within
// recentMove.
const (
	manyTransitions = 6
	recentMove      = 10 * time.Minute
)

// checkAddressMoves finds a floating address that moves repeatedly, or that is claimed by a host which is not a
// replica.
func checkAddressMoves(s *Site) []Finding {
	var findings []Finding
	for _, i := range states[holderReport](s, holderState, AtInfra) {
		if age := s.facts.Taken.Sub(i.value.Since); i.value.Transitions >= manyTransitions && age < recentMove {
			findings = append(findings, warned(podRef(i.pod), "see the logs of containers 'holder': the proxy's readiness changes, or the VLAN loses frames",
				"the pod got or lost the floating address %d times, the last time %s ago", i.value.Transitions, age.Round(time.Second)))
		}
		if n := i.value.Conflicts["stranger"]; n > 0 {
			findings = append(findings, warned(podRef(i.pod), "find the host by its MAC address in the log of container 'holder', and remove the address from it",
				"a host that is not a proxy replica has claimed the floating address %s %d times", joinAddresses(i.value.Addresses), n))
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return strings.Compare(a.Object.Name, b.Object.Name) })
	return findings
}
