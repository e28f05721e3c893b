// Package vip implements xdsd hold: it keeps a floating address on the VLAN interface of exactly one proxy replica.
//
// While the API server is available, a Lease selects the replica: its holder keeps the address, whatever it receives on
// the VLAN. While the API server is unavailable, the VLAN decides: an address that a replica answers for stays where it
// is, an address that no replica answers for is claimed, and of two claims the one with the lower MAC address wins.
// stateMachine implements these rules without clock, sockets or clients, and Holder connects it to them.
//
// Claims are ARP announcements (RFC 5227) and unsolicited neighbour advertisements (RFC 4861). The holder of the Lease
// sends its ARP announcement also as a reply, and adds an option to its neighbour advertisement that other hosts
// ignore. Replicas exchange nothing else.
package vip
