package doctor

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestVMsThatDoNotRenew covers what a replica reports about a VM that has run since 1 January.
func TestVMsThatDoNotRenew(t *testing.T) {
	const machine = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: worker, namespace: clusters-demo, creationTimestamp: 2026-01-01T00:00:00Z}\n" +
		"spec: {networks: [{name: vlan, multus: {networkName: clusters/vlan}}]}\nstatus: {phase: %s}\n"
	silent := func(holder, since string) string {
		return fmt.Sprintf(`{"leasedb": [{"unrenewed": [{"address": "192.0.2.20", "holder": %q, "since": %q}]}]}`, holder, since)
	}
	for _, tc := range []struct {
		name, phase, state string
		want               []string
	}{
		{"renews", "Running", `{"leasedb": [{"unrenewed": []}]}`, []string{}},
		{"silent", "Running", silent("clusters-demo/worker/vlan", "2026-01-02T01:00:00Z"), []string{
			"warn the VM has not renewed the lease of 192.0.2.20 since 2026-01-02T01:00:00Z or earlier, which is longer than the lease time: it has lost the VLAN, hangs, or configures the address without DHCP",
		}},
		{"stopped", "Succeeded", silent("clusters-demo/worker/vlan", "2026-01-02T01:00:00Z"), []string{}},
		{"started since", "Running", silent("clusters-demo/worker/vlan", "2025-12-31T01:00:00Z"), []string{}},
		{"another VM", "Running", silent("clusters-demo/other/vlan", "2026-01-02T01:00:00Z"), []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const lease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: clusters.demo.192.0.2.20, namespace: clusters, labels: {leasedb.densityops.com/pool: clusters.demo, leasedb.densityops.com/state: bound}}\n" +
				"spec: {holderIdentity: clusters-demo/worker/vlan, renewTime: \"2026-01-01T00:00:00.000000Z\"}\n"
			got := findingsOn(t, "OOOI-DHCP-005", map[page]string{dhcpState: tc.state}, fmt.Sprintf(machine, tc.phase), lease)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
