// Package faults is a catalogue of faults of a site, created in live objects, processes or networks, with what doctor must
// report first.
//
// A site has running daemons on an API server without nodes (NewRunning), or is on real nodes. It is healthy before and after
// each fault.
package faults

// Fault is one way to break a site.
type Fault struct {
	// Name states the fault. It is the name of the sub-test.
	Name string
	// Want is the code, without its prefix, and the severity of the first finding of doctor that is not a consequence, such as
	// "PRX-012 fail". Failures come before warnings. Later findings do not matter.
	Want string
	// Says is text that the object, the message, the evidence or the remedy of such a finding contains; empty for any.
	Says string
	// Probe runs doctor with --probe.
	Probe bool
	// Break creates the fault. What it changes by the methods of Site is reverted afterwards.
	Break func()
}

// Group has faults that do not disturb each other. All of them exist at the same time, since daemons report some only after
// minutes, and are reverted in order. While one exists, doctor reports it before those after it.
type Group struct {
	Name   string
	Faults []Fault
}
