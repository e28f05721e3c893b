package faults

import (
	"cmp"
	"fmt"
	"strings"
)

func dhcpFaults() []Fault {
	return []Fault{
		{Name: "DHCP is not ready", Break: infraStatus(`{"componentStatus": {"dhcpReady": false}}`), Want: []string{"DHCP-001 fail"}},
		{Name: "DHCP ranges are full", Break: func(s *Site) { s.addLeases(11, 99, "") }, Want: []string{"DHCP-002 fail"}},
		{Name: "DHCP ranges are nearly full", Break: func(s *Site) { s.addLeases(11, 92, "") }, Want: []string{"DHCP-002 warn"}},
		{Name: "Lease was edited", Break: func(s *Site) {
			s.Patch(leaseKind, "$ns", "$ns.demo.$net.10", `{"spec": {"holderIdentity": null}}`)
		}, Want: []string{"DHCP-003 fail"}},
		{Name: "lease is outside of the ranges", Break: leaseOutsideRanges(100), Want: []string{"DHCP-003 warn"}},
		{Name: "address was declined", Break: declinedLease(20), Want: []string{"DHCP-004 warn"}},
		{Name: "VM has no lease", Break: vmWithoutLease, Want: []string{"DHCP-005 fail"}},
		{Name: "DHCP options set other DNS servers", Break: overrideDNSServers, Want: []string{"DHCP-006 fail"}},
		{Name: "Lease names a VM that does not exist", Break: func(s *Site) { s.addLeases(20, 20, "$ns-demo/ghost/vlan") }, Want: []string{"DHCP-016 warn"}, Says: "/ghost, which is not on the network"},
		{Name: "VM has two Leases", Break: func(s *Site) { s.addLeases(20, 20, "$ns-demo/worker-a/vlan") }, Want: []string{"DHCP-016 fail"}, Says: "has 2 bound Leases"},
	}
}

// editLease returns a function that changes the holder and the MAC address of the Lease of VM worker-a, until Mend.
func editLease(holder, mac string) func(*Site) {
	return func(s *Site) {
		s.Patch(leaseKind, "$ns", "$ns.demo.$net.10", `{"metadata": {"labels": {"leasedb.densityops.com/mac": "`+mac+`"}}, "spec": {"holderIdentity": "`+holder+`"}}`)
	}
}

// addLeases creates bound leases of addresses, given by their first and last host number, until Mend. Each has another
// client if the holder is empty.
func (s *Site) addLeases(from, to int, holder string) {
	var all strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&all, "apiVersion: coordination.k8s.io/v1\nkind: Lease\n"+
			"metadata: {name: $ns.demo.$net.%d, namespace: $ns, labels: {leasedb.densityops.com/pool: $ns.demo, leasedb.densityops.com/state: bound}}\n"+
			"spec: {holderIdentity: \"%s\", renewTime: \"2026-01-02T03:04:05.000000Z\"}\n---\n", i, cmp.Or(holder, fmt.Sprintf("id:%02x", i)))
	}
	s.Add(all.String())
}

// leaseOutsideRanges returns a function that creates a VM with a lease outside of the ranges.
func leaseOutsideRanges(last int) func(*Site) {
	return func(s *Site) {
		s.addLeases(last, last, fmt.Sprintf("$ns-demo/worker-%d/vlan", last))
		s.Add(fmt.Sprintf("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: worker-%d, namespace: $ns-demo}\nspec:\n  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}\n"+
			"  networks: [{name: vlan, multus: {networkName: $vmnet}}]\nstatus: {phase: Running}\n", last))
	}
}

// declinedLease returns a function that creates a Lease of an address that a client declined, because another
// host uses it.
func declinedLease(last int) func(*Site) {
	return func(s *Site) {
		s.Add(fmt.Sprintf("apiVersion: coordination.k8s.io/v1\nkind: Lease\n"+
			"metadata: {name: $ns.demo.$net.%d, namespace: $ns, labels: {leasedb.densityops.com/pool: $ns.demo, leasedb.densityops.com/state: declined}, "+
			"annotations: {leasedb.densityops.com/expires: \"2100-01-02T03:04:05Z\"}}\nspec: {holderIdentity: declined, renewTime: \"2026-01-02T03:04:05.000000Z\"}\n", last))
	}
}

// vmWithoutLease creates a VM that has run for longer than the grace period and has no lease.
func vmWithoutLease(s *Site) {
	s.Add("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: worker-h, namespace: $ns-demo}\nspec:\n  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}\n" +
		"  networks: [{name: vlan, multus: {networkName: $vmnet}}]\n" +
		"status: {phase: Running, phaseTransitionTimestamps: [{phase: Running, phaseTransitionTimestamp: \"2026-01-02T03:04:05Z\"}]}\n")
}

// overrideDNSServers sets a DHCP option with other DNS servers.
func overrideDNSServers(s *Site) {
	s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"dhcp": {"options": [{"code": 6, "value": "203.0.113.53"}]}}}}`)
	s.markObserved()
}
