// Package faults is a catalogue of what can go wrong at a site, each made in live objects,
// processes or networks, with what doctor is to find of it.
//
// A fault breaks a Site, which is healthy before and after. There are two kinds of sites: on an
// API server alone, where this package writes what a kubelet, Multus, HyperShift, KubeVirt and our
// daemons would say (NewSimulated), and on a real node, where they say it themselves.
package faults

import "slices"

// A Fault is one way to break a site.
type Fault struct {
	// Name says what is wrong, for people.
	Name string
	// Break makes it so. What it changes by the Site's own methods is changed back by Mend.
	Break func(*Site)
	// Want are the findings, by code and severity, in the order in which they are shown, so that
	// the first is the root: "PRX-002 fail".
	Want []string
	// Probe has doctor look from the VLAN as well, by --probe.
	Probe bool
	// As is who doctor is run as, by --as; empty for the site's user.
	As string
	// Unheard: a pod does not answer doctor, or something may not be read, so that there are checks
	// that cannot be made.
	Unheard bool
}

// OnAPIServer are the faults of a simulated site.
func OnAPIServer() []Fault {
	return slices.Concat(apiFaults(), hostedFaults(), networkFaults(), podFaults(), dnsFaults(), dhcpFaults(), proxyFaults(), appsFaults(), lastFaults(), accessFaults(), siteFaults())
}
