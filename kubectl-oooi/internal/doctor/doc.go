// Package doctor finds out what is wrong between a machine on the VLAN and its control plane.
//
// Facts are collected first, and never change afterwards. Checks are pure functions over them:
// they work on a saved bundle as on a cluster. A check says which other checks have to pass
// before its own verdict means anything, so that the root of a failure is told from what follows
// of it, and which kinds of objects it reads: what may not be read is never a pass.
package doctor
