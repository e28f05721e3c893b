package faults

import (
	"fmt"
	"strings"
)

func dhcpFaults() []Fault {
	return []Fault{
		{Name: "DHCP that is not ready", Break: infraStatus(`{"componentStatus": {"dhcpReady": false}}`), Want: []string{"DHCP-001 fail"}},
		{Name: "full ranges", Break: func(s *Site) { s.leases(11, 99) }, Want: []string{"DHCP-002 fail"}},
		{Name: "nearly full ranges", Break: func(s *Site) { s.leases(11, 92) }, Want: []string{"DHCP-002 warn"}},
		{Name: "a lease that was edited", Break: func(s *Site) {
			s.Patch(leaseKind, "$ns", "$ns.demo.$net.10", `{"spec": {"holderIdentity": null}}`)
		}, Want: []string{"DHCP-003 fail"}},
		{Name: "a lease outside of the ranges", Break: outside(100), Want: []string{"DHCP-003 warn"}},
		{Name: "an address that was declined", Break: declined(20), Want: []string{"DHCP-004 warn"}},
		{Name: "a machine without a lease", Break: homeless, Want: []string{"DHCP-005 fail"}},
		{Name: "machines that are told of other DNS servers", Break: otherDNS, Want: []string{"DHCP-006 fail"}},
	}
}

// leases gives addresses to machines, from one last number to another.
func (s *Site) leases(from, to int) {
	var all strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&all, "apiVersion: coordination.k8s.io/v1\nkind: Lease\n"+
			"metadata: {name: $ns.demo.$net.%d, namespace: $ns, labels: {leasedb.densityops.com/pool: $ns.demo, leasedb.densityops.com/state: bound}}\n"+
			"spec: {holderIdentity: $ns-demo/worker-%[1]d/vlan, renewTime: \"2026-01-02T03:04:05.000000Z\"}\n---\n", i)
	}
	s.Add(all.String())
}

// outside is a machine that has an address outside of the ranges.
func outside(last int) func(*Site) {
	return func(s *Site) {
		s.leases(last, last)
		s.Add(fmt.Sprintf("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: worker-%d, namespace: $ns-demo}\nspec:\n  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}\n"+
			"  networks: [{name: vlan, multus: {networkName: $ns/$vlan}}]\nstatus: {phase: Running}\n", last))
	}
}

// declined is an address that a client found to be somebody else's.
func declined(last int) func(*Site) {
	return func(s *Site) {
		s.Add(fmt.Sprintf("apiVersion: coordination.k8s.io/v1\nkind: Lease\n"+
			"metadata: {name: $ns.demo.$net.%d, namespace: $ns, labels: {leasedb.densityops.com/pool: $ns.demo, leasedb.densityops.com/state: declined}, "+
			"annotations: {leasedb.densityops.com/expires: \"2100-01-02T03:04:05Z\"}}\nspec: {holderIdentity: declined, renewTime: \"2026-01-02T03:04:05.000000Z\"}\n", last))
	}
}

// homeless is a machine that has run for a while, and has no lease.
func homeless(s *Site) {
	s.Add("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: worker-h, namespace: $ns-demo}\nspec:\n  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}\n" +
		"  networks: [{name: vlan, multus: {networkName: $ns/$vlan}}]\n" +
		"status: {phase: Running, phaseTransitionTimestamps: [{phase: Running, phaseTransitionTimestamp: \"2026-01-02T03:04:05Z\"}]}\n")
}

// otherDNS has DHCP hand out other servers.
func otherDNS(s *Site) {
	s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"dhcp": {"options": [{"code": 6, "value": "203.0.113.53"}]}}}}`)
	s.seen()
}
