package faults

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// OnFloatingAddress returns the faults of a site on real nodes whose proxy has several replicas and a floating
// address.
func OnFloatingAddress() []Fault {
	return []Fault{
		{Name: "two proxy replicas hold the floating address", Break: func(s *Site) {
			address := s.Net + ".7"
			isolateHolder(s, "arp daddr ip "+address+" drop; add rule netdev fault c arp saddr ip "+address+" drop")
		}, Want: []string{"PRX-016 fail", "PRX-008 warn"}},
		{Name: "the replica with the floating address is cut off from the VLAN", Break: func(s *Site) { isolateHolder(s, "ether type arp drop") }, Want: []string{"LNK-004 fail", "PRX-008 warn"}},
		{Name: "another host claims the floating address", Break: func(s *Site) {
			holder := s.holder()
			s.Undo(func() { s.restart(holder) }) // a new process has counted no conflicts
			s.Node.Claim(s.T, s.Net+".7")
		}, Want: []string{"PRX-017 warn"}},
		{Name: "silent host has the floating address", Break: func(s *Site) {
			holder := s.holder()
			s.Undo(func() { s.restart(holder) }) // a new process has counted no conflicts
			s.Undo(s.Node.AddHost(s.T, s.Net+".7", true))
		}, Want: []string{"LNK-005 fail"}, Says: "MAC address " + addedHost + ", answers requests for the floating address"},
		{Name: "silent host has the address of DNS", Break: func(s *Site) { s.Undo(s.Node.AddHost(s.T, s.Net+".6", true)) }, Want: []string{"LNK-005 fail"}, Says: "MAC address " + addedHost + ", answers requests for address"},
		{Name: "state page of xdsd hold is blocked", Inconclusive: true, Break: func(s *Site) {
			holder := s.holder()
			ip, _, _ := unstructured.NestedString(s.Get(podKind, "$ns", holder).Object, "status", "podIP")
			// The kubelet's readiness requests come from the pod network and must pass.
			s.addFilter(holder, "inet", "type filter hook input priority 0;", "ip saddr != "+ip+"/24 tcp dport 9906 drop")
		}, Want: []string{"PRX-015 warn"}},
	}
}

// isolateHolder drops ARP packets on the VLAN by rules at the replica with the address, and disconnects it from the API
// server. Another replica claims the address, since it gets no reply, and the first does not learn of it.
func isolateHolder(s *Site, rules string) {
	holder := s.holder()
	s.addFilter(holder, "netdev", "type filter hook ingress device net1 priority 0;", rules)
	s.addFilter(holder, "inet", "type filter hook output priority 0;", "ip daddr 10.96.0.1 drop")
	s.Await("another replica to claim the address", func() bool { return s.holder() != holder })
}

// holder returns the pod of the replica that holds the Lease of the floating address.
func (s *Site) holder() string {
	s.Helper()
	name, _, _ := unstructured.NestedString(s.Get(leaseKind, "$ns", "demo-proxy-address").Object, "spec", "holderIdentity")
	if name == "" {
		s.Fatal("no replica holds the Lease of the floating address")
	}
	return name
}

// addFilter adds a table with one chain and one rule to the nftables of a pod's network, until Mend.
func (s *Site) addFilter(pod, family, chain, rule string) {
	s.Helper()
	table := family + " fault"
	s.Undo(func() { s.Node.InNetworkOf(s.T, pod, "nft", "delete table "+table) })
	s.Node.InNetworkOf(s.T, pod, "nft", strings.Join([]string{"add table " + table, "add chain " + table + " c { " + chain + " }", "add rule " + table + " c " + rule}, "; "))
}
