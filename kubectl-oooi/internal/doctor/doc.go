// Package doctor diagnoses a site. Its stages are in the order of causes: the first failure of a component is a root cause, and
// later findings about that component, or about components that depend on it, are possible consequences. doctor reports all of them.
//
// The daemons and control detect faults of daemons, clients and the VLAN, see package problem. doctor prints them, and checks what
// the daemons cannot see.
package doctor
