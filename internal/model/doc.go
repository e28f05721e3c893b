// Package model computes a Snapshot from the objects of a management cluster: the hosted clusters and their
// control-plane names, the VLANs, and what each name resolves to for the clients of each VLAN and for pods.
//
// Build is a pure function of its input: it uses no clock, network or file, and its result does not depend on
// the order of the objects. No other package interprets HostedClusters.
//
// A file uses only those before it, except for types that refer to each other, in this order: name, problem, services,
// hostname; the types of a snapshot: addressclaims, infra, apps, view, cluster, proxyserver, snapshot, changes; what one
// object says: network, infraspec, controlplane, hostedcluster; the snapshot of a group: management, builder, bind, consent,
// networks, appshosted, allowed, appssources, appsdomain, viewbuilder, proxybuilder, backends, httproutes, controlroutes,
// proxyservers, build; successive snapshots: groups, merge, incremental. isolation is on its own.
package model
