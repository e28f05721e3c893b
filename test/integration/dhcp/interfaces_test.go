package dhcp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestNetworkManagerOnTwoVLANs boots a VM, with the DHCP client of RHCOS, that has an interface on the VLAN of each of two Infras. The
// second one has defaultRoute: false and dns: false.
func TestNetworkManagerOnTwoVLANs(t *testing.T) {
	c := newCluster(t)
	s, other := newSite(t), newSite(t)
	plugins := c.plugins("192.0.2.2")
	plugins[len(plugins)-1] = "options mtu=1400 t1=2s t2=6s"
	first := c.serveAt(t, s, "192.0.2.2", plugins...)
	second := c.serveAt(t, other, "198.51.100.2",
		strings.Replace(plugins[0], "network=clusters/vlan", "network=clusters/storage", 1),
		"leasedb store=bolt file=DIR/leases.db cidr=198.51.100.0/24 range=198.51.100.100-198.51.100.199 lease=1h server=198.51.100.2",
		"netmask 255.255.255.0", "options t1=2s t2=6s")
	c.cp.MustApply(t, c.vm("worker", mac1, fmt.Sprintf(`spec:
  networks: [{name: vlan, multus: {networkName: clusters/vlan}}, {name: storage, multus: {networkName: clusters/storage}}]
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: %q}, {name: storage, bridge: {}, macAddress: %q}]}}`, mac1, mac2)))
	first.awaitClient(t, mac1, c.namespace+"/worker/vlan")
	second.awaitClient(t, mac2, c.namespace+"/worker/storage")
	vm := s.newMachine(t, mac1)
	lab.Must(t, lab.Cable(lab.End{Bridge: other.bridge}, lab.End{In: vm.Namespace, Device: "eth1", MAC: mac2}))

	vm.networkManager(t)
	for _, vlan := range []struct {
		*server
		device, addresses string
	}{{first, "eth0", "192.0.2.1"}, {second, "eth1", "198.51.100.1"}} {
		lab.Poll(t, "an address of "+vlan.device, func() bool { return strings.HasPrefix(vm.addressOf(t, vlan.device), vlan.addresses) })
		a := vm.addressOf(t, vlan.device)
		lab.Poll(t, "the renewal on "+vlan.device, func() bool { return len(vlan.Log.Lines("request=REQUEST reply=ACK", "to="+a+":68")) > 0 })
	}
	for command, want := range map[string]string{
		"hostname": "worker\n", "grep nameserver /run/NetworkManager/resolv.conf": "nameserver 192.0.2.53\n",
		"ip route show default | cut -d ' ' -f 1-5": "default via 192.0.2.1 dev eth0\n",
	} {
		lab.Await(t, "the host name, the resolvers and one default route", func() string {
			if got := vm.inNetworkManagersMounts(t, command); got != want {
				return command + ": " + got
			}
			return ""
		})
	}
}
