// Package doctor diagnoses a site. The order of its stages is the order of causes: the first stage that fails for a component
// has the root, and findings of later stages about that component, or one that depends on it, are possible consequences.
// Nothing is suppressed.
//
// Faults of daemons, clients and the VLAN are judged by the daemons and by control, see package problem; doctor prints them, and
// checks what they cannot see.
package doctor
