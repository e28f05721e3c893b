// Package setup brings an Infra to work: it reads what is wanted, finds out what it needs to
// know, refuses what cannot work before anything is touched, applies the objects, and waits
// until names are answered and connections carried.
package setup
