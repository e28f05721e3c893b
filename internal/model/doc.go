// Package model computes a Snapshot from the objects of a management cluster: the hosted clusters and their
// control-plane names, the VLANs, and what each name resolves to for the clients of each VLAN and for pods.
//
// Build is a pure function of its input: it uses no clock, network or file, and its result does not depend on
// the order of the objects. No other package interprets HostedClusters.
package model
