package kubevirt

import (
	"fmt"
	"testing"
)

func TestUsedAddresses(t *testing.T) {
	for _, tc := range []struct {
		name, network, status, want string
	}{
		{"one", "clusters/vlan", "interfaces: [{name: vlan, ipAddress: 192.0.2.7}]", "[192.0.2.7]"},
		{
			"several, as the guest puts them", "clusters/vlan",
			`interfaces: [{name: vlan, ipAddress: 192.0.2.7, ipAddresses: [192.0.2.7, "fe80::1", 192.0.2.6/24, "2001:db8::1"]}]`, "[192.0.2.7 192.0.2.6 2001:db8::1]",
		},
		{"none yet", "clusters/vlan", "interfaces: [{name: vlan}]", "[]"},
		{"none that can be read", "clusters/vlan", "interfaces: [{name: vlan, ipAddress: here, ipAddresses: [127.0.0.1, 0.0.0.0, 192.0.2.300]}]", "[]"},
		{"of an interface that only the guest knows", "clusters/vlan", "interfaces: [{interfaceName: docker0, ipAddress: 192.0.2.7}]", "[]"},
		{"on another network", "clusters/other", "interfaces: [{name: vlan, ipAddress: 192.0.2.7}]", "[]"},
		{"of a machine that has ended", "clusters/vlan", "phase: Succeeded, interfaces: [{name: vlan, ipAddress: 192.0.2.7}]", "[]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := parsed(t, fmt.Sprintf(`
metadata: {name: w1-instance, namespace: demo, ownerReferences: [{kind: VirtualMachine, name: w1, controller: true}]}
spec:
  networks: [{name: vlan, multus: {networkName: %s}}]
  domain: {devices: {interfaces: [{name: vlan, macAddress: %q}]}}
status: {%s}
`, tc.network, macA, tc.status))
			list, err := usedBy(u, "clusters/vlan")
			if err != nil {
				t.Fatal(err)
			}
			got := "[]"
			for _, used := range list {
				got = fmt.Sprint(used.Addrs)
				if used.String() != "demo/w1/vlan" || used.MAC != macA || used.Hostname != "w1-instance" {
					t.Errorf("it is of %+v", used)
				}
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if _, err := usedBy(parsed(t, "metadata: {name: a, namespace: b}\nstatus: {interfaces: here}"), "clusters/vlan"); err == nil {
		t.Error("nonsense was read")
	}
}
