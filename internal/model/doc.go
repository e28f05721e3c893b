// Package model says what the objects of a management cluster mean: which hosted
// clusters there are, under which names each control plane is reached, which VLAN
// is whose, and who sees which name with which address.
//
// It is one pure function, Build, from objects to an immutable Snapshot, and the
// only place that knows what a HostedCluster means. It reads no clock, no network
// and no file; equal objects make equal snapshots, in whatever order they come.
package model
