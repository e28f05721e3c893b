// Package vip holds an address that floats between the instances of a proxy: at any time one
// of them has it on its interface of the VLAN.
//
// Two things say who. A Lease decides while the API server is there: who has it keeps the
// address whatever is heard on the network. The network decides when the API server is away: an
// address that a peer answers for stays where it is, one that nobody answers for is claimed, and
// of two that claim it the one with the lower MAC address keeps it. machine is these rules,
// without clock, sockets or clients; Holder has them.
//
// What a claim looks like is RFC 5227 for IPv4 and RFC 4862 for IPv6. An announcement by who has
// the Lease comes as ARP request and as ARP reply, any other as a request alone; for IPv6 it has
// an option that others ignore. That is all that instances tell each other.
package vip
