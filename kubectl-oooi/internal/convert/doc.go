// Package convert turns the objects of the operator that oooi replaces into those of oooi that mean
// the same, and Ingresses into VirtualIngresses. It is pure: what it makes depends on what it reads alone, and no cluster is asked.
package convert
