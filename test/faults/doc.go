// Package faults is a catalogue of faults of a site, created in live objects, processes or networks, with the
// findings that doctor must report.
//
// A fault breaks a Site, which is healthy before and after. A site is simulated on an API server alone
// (NewSimulated), where this package writes the status of the kubelet, Multus, HyperShift, KubeVirt and our
// daemons; it has running daemons on an API server (NewRunning); or it is on a real node.
package faults

import "slices"

// A Fault is one way to break a site.
type Fault struct {
	// Name states the fault. It is the name of the sub-test.
	Name string
	// Break creates the fault. Mend reverts the changes that it makes with the Site's methods.
	Break func(*Site)
	// Want are the findings by code and severity, such as "PRX-002 fail", in the order in which doctor shows
	// them: the first is the root cause.
	Want []string
	// Says is text that a message, the evidence or a remedy of the root cause contains; empty for any.
	Says string
	// Never are texts that no message, evidence or remedy contains, also before doctor has found the root cause.
	Never []string
	// Probe runs doctor with --probe.
	Probe bool
	// As is the user for --as, empty for the site's user.
	As string
	// Inconclusive means that checks are inconclusive because a pod does not answer or a right is missing.
	Inconclusive bool
}

// OnAPIServer returns the faults of a simulated site.
func OnAPIServer() []Fault {
	return slices.Concat(apiFaults(), hostedFaults(), networkFaults(), policyFaults(), podFaults(), dnsFaults(), dhcpFaults(), proxyFaults(), appsFaults(), crdFaults(), accessFaults(), siteFaults(), driftFaults())
}
