package leasedb

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/leasetest"
	"github.com/densityops/oooi/test/lab"
)

const lease = time.Hour

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A replica is a server that a test can disconnect from the network.
type replica struct {
	*instance

	crashed atomic.Bool
}

// A lan is a network of servers and clients, with a log of the granted leases.
type lan struct {
	replicas []*replica
	granted  leasetest.Log
	acks     atomic.Int64
	naks     atomic.Int64
	retries  atomic.Int64
}

// broadcast passes a message to every server concurrently and returns the replies. Replies of a crashed server are
// lost.
func (l *lan) broadcast(m *dhcpv4.DHCPv4) []*dhcpv4.DHCPv4 {
	answers := make([]*dhcpv4.DHCPv4, len(l.replicas))
	var group sync.WaitGroup
	for n, r := range l.replicas {
		if r.crashed.Load() {
			continue
		}
		group.Go(func() {
			resp, ok := exchange(r.instance, m)
			if ok && !r.crashed.Load() {
				answers[n] = resp
			}
		})
	}
	group.Wait()
	var replies []*dhcpv4.DHCPv4
	for _, a := range answers {
		if a != nil {
			replies = append(replies, a)
		}
	}
	return replies
}

// boot runs a client until it has an address or the deadline is over.
func (l *lan) boot(hw net.HardwareAddr, deadline time.Time) (netip.Addr, error) {
	for ; time.Now().Before(deadline); time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond) {
		l.retries.Add(1)
		offers := l.broadcast(message(dhcpv4.MessageTypeDiscover, hw))
		if len(offers) == 0 {
			continue
		}
		offer := offers[rand.IntN(len(offers))]
		request := message(dhcpv4.MessageTypeRequest, hw, withWanted(offer.YourIPAddr),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())))
		for range 3 {
			answers := l.broadcast(request)
			if len(answers) == 0 {
				continue
			}
			if answers[0].MessageType() != dhcpv4.MessageTypeAck {
				l.naks.Add(1)
				break
			}
			addr, _ := address(answers[0].YourIPAddr)
			l.granted.Granted(addr, hw.String(), begin, lease)
			l.acks.Add(1)
			return addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no address", hw)
}

// kubernetes starts a replica with Lease objects.
func kubernetes(tb testing.TB, d vm.Directory, namespace, server, more string) *replica {
	tb.Helper()
	return &replica{instance: serve(tb, d, kubernetesArguments(tb, namespace, server, more))}
}

func kubernetesArguments(tb testing.TB, namespace, server, more string) string {
	tb.Helper()
	return fmt.Sprintf("store=kubernetes namespace=%s pool=clusters.demo kubeconfig=%s cidr=10.0.0.0/16 range=10.0.1.0-10.0.9.255 server=%s %s",
		namespace, plane.Get(tb).Kubeconfig(), server, more)
}

func fleet(n int) *directory {
	d := newDirectory()
	for i := range n {
		d.boot(fmt.Sprint("worker-", i), mac(i))
	}
	return d
}

func TestTwoReplicasAndManyClientsAtOnce(t *testing.T) {
	clients := lab.Length(500, 2000)
	ns := plane.Get(t).Namespace(t)
	d := fleet(clients)
	l := &lan{replicas: []*replica{kubernetes(t, d, ns, "10.0.0.2", ""), kubernetes(t, d, ns, "10.0.0.3", "")}}
	addrs := make([]netip.Addr, clients)
	deadline := time.Now().Add(2 * time.Minute)
	var group sync.WaitGroup
	for n := range clients {
		group.Go(func() {
			var err error
			if addrs[n], err = l.boot(mac(n), deadline); err != nil {
				t.Error(err)
			}
			if int(l.acks.Load()) >= clients/2 {
				l.replicas[1].crashed.Store(true) // while clients are being served
			}
		})
	}
	group.Wait()
	lab.Report(t, l.granted.Check())
	if got := l.granted.Holders(); got != clients {
		t.Errorf("%d clients have an address, want %d", got, clients)
	}
	t.Logf("%d rounds, %d NAKs for %d clients", l.retries.Load(), l.naks.Load(), clients)

	survivor := l.replicas[0]
	for n, addr := range addrs { // leased by either replica
		lab.Poll(t, "the surviving replica to know all bindings", func() bool {
			resp, ok := exchange(survivor.instance, message(dhcpv4.MessageTypeRequest, mac(n), dhcpv4.WithClientIP(addr.AsSlice())))
			return ok && resp.MessageType() == dhcpv4.MessageTypeAck
		})
	}
	fresh := kubernetes(t, d, ns, "10.0.0.4", "")
	for n, addr := range addrs {
		want(t, fresh.instance, message(dhcpv4.MessageTypeRequest, mac(n), dhcpv4.WithClientIP(addr.AsSlice())), dhcpv4.MessageTypeAck)
	}
}
