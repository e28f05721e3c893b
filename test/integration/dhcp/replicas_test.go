package dhcp_test

import (
	"net"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// leasedbPlugin returns the plugin leasedb for a replica with a pool of Lease objects.
func (c *cluster) leasedbPlugin(address string) string {
	return strings.ReplaceAll("leasedb store=kubernetes namespace=NS pool=NS.infra kubeconfig=DIR/kubeconfig snapshot=DIR/leases.json "+
		"cidr=192.0.2.0/24 range=192.0.2.100-192.0.2.249 lease=1h server="+address, "NS", c.namespace)
}

// TestReplicaIsNotReportedAsOtherServer runs two replicas, whose configurations do not name each other, and another server. A VM selects each
// of them.
func TestReplicaIsNotReportedAsOtherServer(t *testing.T) {
	t.Parallel() // it mostly waits
	s, c := newSite(t), newCluster(t)
	c.cp.MustApply(t, c.vm("a", mac1), c.vm("b", mac2))
	var servers []*server
	for _, address := range []string{"192.0.2.2", "192.0.2.3"} {
		plugins := c.plugins(address)
		plugins[1] = c.leasedbPlugin(address)
		servers = append(servers, c.serveAt(t, s, address, plugins...))
	}
	for _, srv := range servers {
		lab.Poll(t, "all VMs to be known", func() bool { return len(srv.state(t).Kubevirt.Clients) == 2 })
	}
	lab.OtherDHCP(t, s.bridge, "192.0.2")
	for i, mac := range []string{mac1, mac2} {
		w := s.newMachine(t, mac).dial(t, 68)
		w.send(t, w.selecting(t, net.IPv4(192, 0, 2, 100), net.IPv4(192, 0, 2, byte(2+i))).ToBytes(), broadcast)
	}
	for _, srv := range servers {
		lab.Poll(t, "the other server to be reported", func() bool {
			_, text := srv.get(t, "/problems")
			return strings.Contains(text, "another DHCP server replies on the VLAN: 192.0.2.239")
		})
		if _, text := srv.get(t, "/problems"); strings.Count(text, `"code"`) != 1 || !strings.Contains(text, `"severity": "warn"`) {
			t.Errorf("problems: %s", text)
		}
	}
	mac, err := net.ParseMAC(mac1)
	lab.Must(t, err)
	third := s.newMachine(t, mac3).dial(t, 68)
	request := third.selecting(t, net.IPv4(192, 0, 2, 240), net.IPv4(192, 0, 2, 239))
	request.ClientHWAddr = mac
	third.send(t, request.ToBytes(), broadcast)
	for _, srv := range servers {
		lab.Poll(t, "the VM to have selected the other server", func() bool {
			_, text := srv.get(t, "/problems")
			return strings.Contains(text, `"severity": "fail"`) && strings.Contains(text, "was selected by VM interface "+c.interfaceOf("a"))
		})
	}
}

// TestVMsAreServedDuringAFlood sends packets of random clients from an unknown host while a VM requests and
// renews a lease.
func TestVMsAreServedDuringAFlood(t *testing.T) {
	s, _, srv := newWorker(t)
	stranger := s.newMachine(t, mac2).dial(t, 68)
	const packets = 20_000
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		p, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover), dhcpv4.WithHwAddr(stranger.m.mac))
		if err != nil {
			t.Error(err)
			return
		}
		data := p.ToBytes()
		for i := range packets {
			data[4], data[31], data[32], data[33] = byte(i), byte(i), byte(i>>8), byte(i>>16)
			if _, err := stranger.conn.WriteToUDP(data, &net.UDPAddr{IP: broadcast, Port: dhcpv4.ServerPort}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	m := s.newMachine(t, mac1)
	m.startClient(t, m.dhclient(t)...)
	m.awaitEvent(t, 0, "BOUND")
	<-flooded
	m.awaitEvent(t, len(m.events(t)), "RENEW")
	if n := srv.Metric(t, "coredhcp_kubevirt_unknown_total"); n < packets/10 {
		t.Errorf("only %[2]v of %[1]d packets arrived, too few for a flood", packets, n)
	}
}
