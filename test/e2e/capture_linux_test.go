//go:build e2e

package e2e_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

const (
	// requestInterval is the interval of a capture's ARP requests.
	requestInterval = 50 * time.Millisecond
	// claimTimeout is the time after which a claim ends, unless it is repeated.
	claimTimeout = 10 * requestInterval
)

// Size and field offsets of an ARP packet for IPv4 on Ethernet (RFC 826), and the operation of a request.
const (
	arpSize      = 28
	arpSenderMAC = 8
	arpSender    = 14
	arpTarget    = 24
	arpRequest   = 1
)

// A capture records all ARP packets on the VLAN's bridge in which a sender claims an address, in replies and
// announcements. It sends ARP requests at a constant rate, so that the holder replies.
type capture struct {
	address netip.Addr
	conn    *packet.Conn
	mac     net.HardwareAddr

	mu     sync.Mutex
	claims []claim
}

// claim is a packet whose sender claims the address.
type claim struct {
	at  time.Time
	mac string
}

// newCapture starts a capture that runs until the test ends.
func newCapture(t *testing.T, bridge, address string) *capture {
	t.Helper()
	i, err := net.InterfaceByName(bridge)
	if err != nil {
		t.Fatal(err)
	}
	c := &capture{address: netip.MustParseAddr(address), mac: i.HardwareAddr}
	if c.conn, err = packet.Listen(i, packet.Datagram, unix.ETH_P_ARP, nil); err != nil {
		t.Fatal(err)
	}
	// Also capture unicast frames between machines.
	if err := c.conn.SetPromiscuous(true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { c.ask(ctx) })
	all.Go(c.read)
	t.Cleanup(func() {
		cancel()
		_ = c.conn.Close() // ends the reader
		all.Wait()
	})
	return c
}

// ask sends ARP probes (RFC 5227), which claim no address themselves.
func (c *capture) ask(ctx context.Context) {
	frame := arpFrame(c.mac, netip.IPv4Unspecified(), c.address)
	tick := time.NewTicker(requestInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = c.conn.WriteTo(frame, ethernetBroadcast) // an error affects only this request
		}
	}
}

// ethernetBroadcast is Ethernet's broadcast address.
var ethernetBroadcast = &packet.Addr{HardwareAddr: net.HardwareAddr{255, 255, 255, 255, 255, 255}}

// arpFrame returns an ARP request for target.
func arpFrame(mac net.HardwareAddr, sender, target netip.Addr) []byte {
	frame := make([]byte, arpSize)
	copy(frame, []byte{0, 1, 8, 0, 6, 4, 0, arpRequest})
	copy(frame[arpSenderMAC:], mac)
	copy(frame[arpSender:], sender.AsSlice())
	copy(frame[arpTarget:], target.AsSlice())
	return frame
}

func (c *capture) read() {
	frame := make([]byte, 128)
	for {
		n, _, err := c.conn.ReadFrom(frame)
		if err != nil {
			return
		}
		if n < arpSize || netip.AddrFrom4([4]byte(frame[arpSender:])) != c.address {
			continue
		}
		c.mu.Lock()
		c.claims = append(c.claims, claim{time.Now(), net.HardwareAddr(frame[arpSenderMAC:arpSender]).String()})
		c.mu.Unlock()
	}
}

// claimants returns the MAC addresses that currently claim the address.
func (c *capture) claimants() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var macs []string
	for _, claim := range slices.Backward(c.claims) {
		if time.Since(claim.at) > claimTimeout {
			break
		}
		macs = append(macs, claim.mac)
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}

// timeWithTwoHolders returns for how long since a time more than one MAC address claimed the address. A MAC
// address holds it from each claim to its next one, unless these are claimTimeout or more apart.
func (c *capture) timeWithTwoHolders(since time.Time) (total time.Duration) {
	type step struct {
		at     time.Time
		change int
	}
	var steps []step
	last := map[string]time.Time{}
	c.mu.Lock()
	for _, claim := range c.claims {
		if claim.at.Before(since) {
			continue
		}
		if before, ok := last[claim.mac]; ok && claim.at.Sub(before) < claimTimeout {
			steps = append(steps, step{before, 1}, step{claim.at, -1})
		}
		last[claim.mac] = claim.at
	}
	c.mu.Unlock()
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	holders := 0
	for i, s := range steps {
		if holders > 1 {
			total += s.at.Sub(steps[i-1].at)
		}
		holders += s.change
	}
	return total
}
