package dhcp_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// twoVLANs has a running VM with an interface on the VLAN of each of two Infras. The second one has defaultRoute: false and
// dns: false.
type twoVLANs struct {
	*machine

	first, second *server
}

// newTwoVLANs returns a VM called worker without leases.
func newTwoVLANs(t *testing.T) *twoVLANs {
	t.Helper()
	c := newCluster(t)
	s, other := newSite(t), newSite(t)
	plugins := c.plugins("192.0.2.2")
	plugins[len(plugins)-1] = "options mtu=1400 t1=2s t2=6s"
	v := &twoVLANs{first: c.serveAt(t, s, "192.0.2.2", plugins...)}
	v.second = c.serveAt(t, other, "198.51.100.2",
		strings.Replace(plugins[0], "network=clusters/vlan", "network=clusters/storage", 1),
		"leasedb store=bolt file=DIR/leases.db cidr=198.51.100.0/24 range=198.51.100.100-198.51.100.199 lease=1h server=198.51.100.2",
		"netmask 255.255.255.0", "options t1=2s t2=6s")
	c.cp.MustApply(t, c.vm("worker", mac1, fmt.Sprintf(`spec:
  networks: [{name: vlan, multus: {networkName: clusters/vlan}}, {name: storage, multus: {networkName: clusters/storage}}]
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: %q}, {name: storage, bridge: {}, macAddress: %q}]}}`, mac1, mac2)))
	v.first.awaitClient(t, mac1, c.namespace+"/worker/vlan")
	v.second.awaitClient(t, mac2, c.namespace+"/worker/storage")
	v.machine = s.newMachine(t, mac1)
	lab.Must(t, lab.Cable(lab.End{Bridge: other.bridge}, lab.End{In: v.Namespace, Device: "eth1", MAC: mac2}))
	return v
}

// check waits until the VM has the addresses, and has renewed both leases, and compares its default routes.
func (v *twoVLANs) check(t *testing.T) {
	t.Helper()
	lab.Await(t, "addresses on both VLANs", func() string {
		a, b := v.addressOf(t, "eth0"), v.addressOf(t, "eth1")
		if strings.HasPrefix(a, "192.0.2.1") && strings.HasPrefix(b, "198.51.100.1") {
			return ""
		}
		return "addresses " + a + " and " + b
	})
	for srv, device := range map[*server]string{v.first: "eth0", v.second: "eth1"} {
		a := v.addressOf(t, device)
		lab.Poll(t, "the renewal on "+device, func() bool { return len(srv.Log.Lines("request=REQUEST reply=ACK", "to="+a+":68")) > 0 })
	}
	lab.Await(t, "one default route", func() string {
		if routes := v.Run(t, "ip", "route", "show", "default"); strings.Count(routes, "default ") != 1 || !strings.HasPrefix(routes, "default via 192.0.2.1 dev eth0") {
			return "default routes: " + routes
		}
		return ""
	})
}

// TestNetworkManagerOnTwoVLANs boots a VM with the DHCP client of RHCOS on two VLANs.
func TestNetworkManagerOnTwoVLANs(t *testing.T) {
	v := newTwoVLANs(t)
	v.networkManager(t)
	v.check(t)
	for command, want := range map[string]string{"hostname": "worker\n", "grep nameserver /run/NetworkManager/resolv.conf": "nameserver 192.0.2.53\n"} {
		lab.Await(t, "the host name and the resolvers", func() string {
			if got := v.inNetworkManagersMounts(t, command); got != want {
				return command + ": " + got
			}
			return ""
		})
	}
}

// TestDhclientOnTwoVLANs boots a VM with ISC's DHCP client and its own script on two VLANs.
func TestDhclientOnTwoVLANs(t *testing.T) {
	v := newTwoVLANs(t)
	v.write(t, "dhclient.conf", dhclientConf)
	v.startClient(t, "unshare", "--mount", "--uts", "sh", "-c", strings.ReplaceAll(`hostname localhost && cp -a /etc DIR/etc && mount --bind DIR/etc /etc &&
exec dhclient -4 -d -cf DIR/dhclient.conf -lf DIR/leases -pf DIR/pid eth0 eth1`, "DIR", v.Dir))
	v.check(t)
	lab.Await(t, "the host name and the resolvers", func() string {
		data, err := os.ReadFile(v.file("etc/resolv.conf"))
		if err != nil {
			return err.Error()
		}
		var servers []string
		for line := range strings.Lines(string(data)) {
			if server, ok := strings.CutPrefix(line, "nameserver "); ok {
				servers = append(servers, strings.TrimSpace(server))
			}
		}
		pid, err := os.ReadFile(v.file("pid"))
		if err != nil {
			return err.Error()
		}
		name := strings.TrimSpace(v.Run(t, "nsenter", "--target="+strings.TrimSpace(string(pid)), "--uts", "hostname"))
		if len(servers) != 1 || servers[0] != "192.0.2.53" || name != "worker" {
			return fmt.Sprintf("host name %s, resolvers %v", name, servers)
		}
		return ""
	})
}
