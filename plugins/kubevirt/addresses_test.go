package kubevirt

import (
	"fmt"
	"testing"
)

func TestUsedAddresses(t *testing.T) {
	for _, tc := range []struct {
		name, network, status, want string
	}{
		{"one address", "clusters/vlan", "interfaces: [{name: vlan, ipAddress: 192.0.2.7}]", "[192.0.2.7]"},
		{
			"several addresses, in the order of the status", "clusters/vlan",
			`interfaces: [{name: vlan, ipAddress: 192.0.2.7, ipAddresses: [192.0.2.7, "fe80::1", 192.0.2.6/24, "2001:db8::1"]}]`, "[192.0.2.7 192.0.2.6 2001:db8::1]",
		},
		{"no address yet", "clusters/vlan", "interfaces: [{name: vlan}]", "[]"},
		{"invalid and local addresses", "clusters/vlan", "interfaces: [{name: vlan, ipAddress: here, ipAddresses: [127.0.0.1, 0.0.0.0, 192.0.2.300]}]", "[]"},
		{"address of an interface that only the guest reports", "clusters/vlan", "interfaces: [{interfaceName: docker0, ipAddress: 192.0.2.7}]", "[]"},
		{"address on another network", "clusters/other", "interfaces: [{name: vlan, ipAddress: 192.0.2.7}]", "[]"},
		{"address of a VM that has ended", "clusters/vlan", "phase: Succeeded, interfaces: [{name: vlan, ipAddress: 192.0.2.7}]", "[]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := parseYAML(t, fmt.Sprintf(`
metadata: {name: w1-instance, namespace: demo, ownerReferences: [{kind: VirtualMachine, name: w1, controller: true}]}
spec:
  networks: [{name: vlan, multus: {networkName: %s}}]
  domain: {devices: {interfaces: [{name: vlan, macAddress: %q}]}}
status: {%s}
`, tc.network, macA, tc.status))
			list, err := reportedBy(u, &networks{own: "clusters/vlan"})
			if err != nil {
				t.Fatal(err)
			}
			got := "[]"
			for _, reported := range list {
				got = fmt.Sprint(reported.Addrs)
				if reported.String() != "demo/w1/vlan" || reported.MAC != macA || reported.Hostname != "w1-instance" {
					t.Errorf("got interface %+v", reported)
				}
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if _, err := reportedBy(parseYAML(t, "metadata: {name: a, namespace: b}\nstatus: {interfaces: here}"), &networks{}); err == nil {
		t.Error("an invalid status is no error")
	}
}
