package faults

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// OnSeveral are the faults of a site on real nodes whose proxy has several instances, between which its
// address moves.
func OnSeveral() []Fault {
	return []Fault{
		{Name: "two instances of the proxy that do not hear each other", Break: deafened, Want: []string{"PRX-016 fail", "PRX-008 warn"}},
		{Name: "somebody who claims the proxy's address", Break: func(s *Site) {
			holder := s.holder()
			s.Undo(func() { s.restart(holder) }) // which has heard nobody yet
			s.Node.Claim(s.T, s.Net+".7")
		}, Want: []string{"PRX-017 warn"}},
		{Name: "an instance of the proxy that nobody may ask for the address", Unheard: true, Break: func(s *Site) {
			holder := s.holder()
			ip, _, _ := unstructured.NestedString(s.There(podKind, "$ns", holder).Object, "status", "podIP")
			// The kubelet, which asks whether it is ready, is in the pods' network as well.
			s.filter(holder, "inet", "type filter hook input priority 0;", "ip saddr != "+ip+"/24 tcp dport 9906 drop")
		}, Want: []string{"PRX-015 warn"}},
	}
}

// deafened is the instance that has the address, cut off from the API server, and without what is
// said on the VLAN about addresses: another one takes the address, as nobody answers for it, and the
// first does not hear so.
func deafened(s *Site) {
	holder := s.holder()
	s.filter(holder, "netdev", "type filter hook ingress device net1 priority 0;", "ether type arp drop")
	s.filter(holder, "inet", "type filter hook output priority 0;", "ip daddr 10.96.0.1 drop")
	s.Await("another instance to take the address", func() bool { return s.holder() != holder })
}

// holder is the instance of the proxy that has the address, by the Lease.
func (s *Site) holder() string {
	s.Helper()
	name, _, _ := unstructured.NestedString(s.There(leaseKind, "$ns", "demo-proxy-address").Object, "spec", "holderIdentity")
	if name == "" {
		s.Fatal("nobody has the Lease of the proxy's address")
	}
	return name
}

// filter has the network of a pod go by one more rule, until Mend.
func (s *Site) filter(pod, family, chain, rule string) {
	s.Helper()
	table := family + " fault"
	s.Undo(func() { s.Node.InNetworkOf(s.T, pod, "nft", "delete table "+table) })
	s.Node.InNetworkOf(s.T, pod, "nft", strings.Join([]string{"add table " + table, "add chain " + table + " c { " + chain + " }", "add rule " + table + " c " + rule}, "; "))
}
