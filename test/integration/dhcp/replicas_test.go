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

// leases is the plugin for a replica of a pool on the API server.
func (c *cluster) leases(address string) string {
	return strings.ReplaceAll("leasedb store=kubernetes namespace=NS pool=NS.infra kubeconfig=DIR/kubeconfig snapshot=DIR/leases.json "+
		"cidr=192.0.2.0/24 range=192.0.2.100-192.0.2.249 lease=1h server="+address, "NS", c.namespace)
}

// TestTwoReplicasShareAVLAN boots many machines at once with two servers, one of which is
// killed in the middle. Nobody gets another's address, and everybody gets one.
func TestTwoReplicasShareAVLAN(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	const machines = 100
	var yaml strings.Builder
	clients := make([]*booting, machines)
	for i := range clients {
		clients[i] = &booting{mac: net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}}
		name := fmt.Sprintf("worker-%d", i)
		yaml.WriteString(c.machine(name) + c.instance(name, clients[i].mac.String(), "kubevirt.io/test", ""))
	}
	c.apply(t, yaml.String())
	var servers []*server
	for _, address := range []string{"192.0.2.2", "192.0.2.3"} {
		plugins := c.plugins(address)
		plugins[1] = c.leases(address)
		srv := c.serveAt(t, s, address, plugins...)
		lab.Poll(t, "all machines to be known", func() bool { return len(srv.state(t).Kubevirt.Clients) == machines })
		servers = append(servers, srv)
	}

	w := s.newMachine(t, mac3).dial(t, 68)
	killed := false
	for start := time.Now(); ; {
		if time.Since(start) > lab.Patience {
			t.Fatalf("%d of %d machines have an address", bound(clients), machines)
		}
		for i, b := range clients {
			b.ask(t, w, byte(i))
		}
		w.deliver(t, clients)
		n := bound(clients)
		if n > machines/3 && !killed {
			t.Logf("a replica is killed when %d machines have an address", n)
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
			t.Errorf("%s is %s's and %s's", address, other, b.mac)
		}
		owners[address] = b.mac.String()
		servedBy[b.ack.ServerIdentifier().String()]++
	}
	t.Logf("served by: %v", servedBy)

	// The replica that is left renews for those of the other, and knows all of them.
	for i, b := range clients {
		req, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithHwAddr(b.mac), dhcpv4.WithClientIP(b.ack.YourIPAddr))
		if err != nil {
			t.Fatal(err)
		}
		if ack := w.ask(t, req, broadcast); ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.Equal(b.ack.YourIPAddr) {
			t.Errorf("client %d had %s and is told %s", i, b.ack.YourIPAddr, ack.Summary())
		}
	}
}

// booting is a client on its way to an address.
type booting struct {
	mac   net.HardwareAddr
	offer *dhcpv4.DHCPv4
	ack   *dhcpv4.DHCPv4
	tries int
	asked time.Time
}

func bound(clients []*booting) (n int) {
	for _, b := range clients {
		if b.ack != nil {
			n++
		}
	}
	return n
}

// again is for how long a client waits before it asks again.
const again = 500 * time.Millisecond

// ask sends what the client has to say next, if it is time to.
func (b *booting) ask(t *testing.T, w *wire, id byte) {
	t.Helper()
	if b.ack != nil || time.Since(b.asked) < again {
		return
	}
	b.asked = time.Now()
	b.tries++
	if b.tries%3 == 0 { // its server may be gone
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

// deliver hands the answers that are there to their clients. Who has an offer asks at once.
func (w *wire) deliver(t *testing.T, clients []*booting) {
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
			t.Fatalf("an answer to nobody: %v", err)
		}
		b := clients[p.TransactionID[3]]
		switch p.MessageType() {
		case dhcpv4.MessageTypeOffer:
			if b.offer == nil {
				b.offer, b.asked = p, time.Time{}
			}
		case dhcpv4.MessageTypeAck:
			if b.ack == nil {
				b.ack = p
			}
		case dhcpv4.MessageTypeNak:
			b.offer, b.asked = nil, time.Time{}
		default:
			t.Errorf("%s", p.Summary())
		}
	}
}

// TestTwoInfrasOnAVLANServeTheirOwn has a server for each of two hosted clusters.
func TestTwoInfrasOnAVLANServeTheirOwn(t *testing.T) {
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
		c.run(t, srv, "worker", mac, "")
	}
	for i, mac := range []string{mac1, mac2} {
		m := s.newMachine(t, mac)
		m.client(t, m.dhclient(t)...)
		if e := m.told(t, 0, "BOUND"); e["new_dhcp_server_identifier"] != fmt.Sprintf("192.0.2.%d", i+2) {
			t.Errorf("the machine of %s is served %v", owners[i].namespace, e)
		}
	}
}

// TestAFloodLeavesTheOthersServed has a stranger send packets of random clients, and a
// machine asks meanwhile.
func TestAFloodLeavesTheOthersServed(t *testing.T) {
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
	m.client(t, m.dhclient(t)...)
	m.told(t, 0, "BOUND")
	<-flooded
	m.told(t, len(m.events(t)), "RENEW")
	if n := srv.metric(t, "coredhcp_kubevirt_unknown_total"); n < packets/10 {
		t.Errorf("of %d packets %v arrived: that was no flood", packets, n)
	}
}
