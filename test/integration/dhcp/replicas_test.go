package dhcp_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// leasedbPlugin returns the plugin leasedb for a replica with a pool of Lease objects.
func (c *cluster) leasedbPlugin(address string) string {
	return strings.ReplaceAll("leasedb store=kubernetes namespace=NS pool=NS.infra kubeconfig=DIR/kubeconfig snapshot=DIR/leases.json "+
		"cidr=192.0.2.0/24 range=192.0.2.100-192.0.2.249 lease=1h server="+address, "NS", c.namespace)
}

// TestTwoReplicasShareAVLAN boots many machines at the same time with two servers, one of which is killed
// during the boots. Every machine gets an address, and no two get the same.
func TestTwoReplicasShareAVLAN(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	const machines = 100
	var yaml strings.Builder
	clients := make([]*dhcpClient, machines)
	for i := range clients {
		clients[i] = &dhcpClient{mac: net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}}
		name := fmt.Sprintf("worker-%d", i)
		yaml.WriteString(c.virtualMachine(name) + c.instance(name, clients[i].mac.String(), "kubevirt.io/test", ""))
	}
	c.apply(t, yaml.String())
	var servers []*server
	for _, address := range []string{"192.0.2.2", "192.0.2.3"} {
		plugins := c.plugins(address)
		plugins[1] = c.leasedbPlugin(address)
		srv := c.serveAt(t, s, address, plugins...)
		lab.Poll(t, "all VMs to be known", func() bool { return len(srv.state(t).Kubevirt.Clients) == machines })
		servers = append(servers, srv)
	}

	w := s.newMachine(t, mac3).dial(t, 68)
	killed := false
	for start := time.Now(); ; {
		if time.Since(start) > lab.WaitTimeout {
			t.Fatalf("%d of %d clients have a lease", bound(clients), machines)
		}
		for i, b := range clients {
			b.send(t, w, byte(i))
		}
		w.deliver(t, clients)
		n := bound(clients)
		if n > machines/3 && !killed {
			t.Logf("killing a replica when %d clients have a lease", n)
			servers[0].Kill(t)
			killed = true
		}
		if n == machines && killed {
			break
		}
	}
	owners := map[string]string{}
	servedBy := map[string]int{}
	for _, b := range clients {
		address := b.ack.YourIPAddr.String()
		if other, taken := owners[address]; taken {
			t.Errorf("%s is leased to both %s and %s", address, other, b.mac)
		}
		owners[address] = b.mac.String()
		servedBy[b.ack.ServerIdentifier().String()]++
	}
	t.Logf("served by: %v", servedBy)

	// The remaining replica renews leases of the killed one.
	for i, b := range clients {
		req, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithHwAddr(b.mac), dhcpv4.WithClientIP(b.ack.YourIPAddr))
		if err != nil {
			t.Fatal(err)
		}
		if ack := w.exchange(t, req, broadcast); ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.Equal(b.ack.YourIPAddr) {
			t.Errorf("client %d renews %s: %s", i, b.ack.YourIPAddr, ack.Summary())
		}
	}
}

// dhcpClient is a client that requests an address.
type dhcpClient struct {
	mac    net.HardwareAddr
	offer  *dhcpv4.DHCPv4
	ack    *dhcpv4.DHCPv4
	tries  int
	sentAt time.Time
}

func bound(clients []*dhcpClient) (n int) {
	for _, b := range clients {
		if b.ack != nil {
			n++
		}
	}
	return n
}

// retryInterval is the time after which a client sends again.
const retryInterval = 500 * time.Millisecond

// send sends the client's next DISCOVER or REQUEST, unless it has a lease or retryInterval has not passed.
func (b *dhcpClient) send(t *testing.T, w *rawClient, id byte) {
	t.Helper()
	if b.ack != nil || time.Since(b.sentAt) < retryInterval {
		return
	}
	b.sentAt = time.Now()
	b.tries++
	if b.tries%3 == 0 { // the server of the offer may have been killed
		b.offer = nil
	}
	mods := []dhcpv4.Modifier{dhcpv4.WithHwAddr(b.mac), dhcpv4.WithTransactionID(dhcpv4.TransactionID{9, 9, 9, id})}
	if b.offer == nil {
		mods = append(mods, dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover))
	} else {
		mods = append(mods, dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest),
			dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(b.offer.YourIPAddr)),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(b.offer.ServerIdentifier())))
	}
	p, err := dhcpv4.New(mods...)
	if err != nil {
		t.Fatal(err)
	}
	w.send(t, p.ToBytes(), broadcast)
}

// deliver passes received replies to their clients. A client with a new offer sends its REQUEST at the next
// send.
func (w *rawClient) deliver(t *testing.T, clients []*dhcpClient) {
	t.Helper()
	buffer := make([]byte, 2048)
	for {
		if err := w.conn.SetReadDeadline(time.Now().Add(5 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, _, err := w.conn.ReadFromUDP(buffer)
		if err != nil {
			return
		}
		p, err := dhcpv4.FromBytes(buffer[:n])
		if err != nil || int(p.TransactionID[3]) >= len(clients) {
			t.Fatalf("reply for no client: %v", err)
		}
		b := clients[p.TransactionID[3]]
		switch p.MessageType() {
		case dhcpv4.MessageTypeOffer:
			if b.offer == nil {
				b.offer, b.sentAt = p, time.Time{}
			}
		case dhcpv4.MessageTypeAck:
			if b.ack == nil {
				b.ack = p
			}
		case dhcpv4.MessageTypeNak:
			b.offer, b.sentAt = nil, time.Time{}
		default:
			t.Errorf("%s", p.Summary())
		}
	}
}

// TestReplicaIsNoOtherServer runs two replicas, whose configurations do not name each other, and another server. A VM selects each
// of them.
func TestReplicaIsNoOtherServer(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	c.apply(t, c.virtualMachine("a")+c.instance("a", mac1, "kubevirt.io/test", "")+c.virtualMachine("b")+c.instance("b", mac2, "kubevirt.io/test", ""))
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
			_, text, err := srv.get(t, "/problems")
			return err == nil && strings.Contains(text, "another DHCP server answers on the VLAN: 192.0.2.239")
		})
		if _, text, err := srv.get(t, "/problems"); err != nil || strings.Count(text, `"code"`) != 1 || !strings.Contains(text, `"severity": "warn"`) {
			t.Errorf("%v: %s", err, text)
		}
	}
	mac, err := net.ParseMAC(mac1)
	if err != nil {
		t.Fatal(err)
	}
	third := s.newMachine(t, mac3).dial(t, 68)
	request := third.selecting(t, net.IPv4(192, 0, 2, 240), net.IPv4(192, 0, 2, 239))
	request.ClientHWAddr = mac
	third.send(t, request.ToBytes(), broadcast)
	for _, srv := range servers {
		lab.Poll(t, "the VM to have selected the other server", func() bool {
			_, text, err := srv.get(t, "/problems")
			return err == nil && strings.Contains(text, `"severity": "fail"`) && strings.Contains(text, "was selected by VM interface "+c.interfaceOf("a"))
		})
	}
}

// TestTwoInfrasOnOneVLAN checks that on a VLAN with the servers of two hosted clusters each server serves
// only its own VMs.
func TestTwoInfrasOnOneVLAN(t *testing.T) {
	s := newSite(t)
	var owners []*cluster
	for i, part := range []string{"range=192.0.2.100-192.0.2.149", "range=192.0.2.150-192.0.2.199"} {
		c := newCluster(t)
		owners = append(owners, c)
		address := fmt.Sprintf("192.0.2.%d", i+2)
		plugins := c.plugins(address)
		plugins[1] = strings.Replace(plugins[1], "range=192.0.2.100-192.0.2.199", part, 1)
		srv := c.serveAt(t, s, address, plugins...)
		mac := []string{mac1, mac2}[i]
		c.startVM(t, srv, "worker", mac, "")
	}
	for i, mac := range []string{mac1, mac2} {
		m := s.newMachine(t, mac)
		m.startClient(t, m.dhclient(t)...)
		if e := m.awaitEvent(t, 0, "BOUND"); e["new_dhcp_server_identifier"] != fmt.Sprintf("192.0.2.%d", i+2) {
			t.Errorf("lease of the VM of %s: %v", owners[i].namespace, e)
		}
	}
}

// TestVMsAreServedDuringAFlood sends packets of random clients from an unknown host while a VM requests and
// renews a lease.
func TestVMsAreServedDuringAFlood(t *testing.T) {
	s, _, srv := newWorker(t, "")
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
	if n := srv.metric(t, "coredhcp_kubevirt_unknown_total"); n < packets/10 {
		t.Errorf("only %[2]v of %[1]d packets arrived, too few for a flood", packets, n)
	}
}
