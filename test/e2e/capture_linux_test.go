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
	// askEvery is how often a capture asks who has the address.
	askEvery = 50 * time.Millisecond
	// silence is for how long who has an address may not say so.
	silence = 10 * askEvery
)

// Where ARP (RFC 826) for IPv4 on Ethernet has what, and the request.
const (
	arpSize      = 28
	arpSenderMAC = 8
	arpSender    = 14
	arpTarget    = 24
	arpRequest   = 1
)

// A capture is on the VLAN's bridge, past which all its frames go. It takes down who says that an
// address is his, by answer or announcement, and asks all the time, so that there are answers.
type capture struct {
	address netip.Addr
	conn    *packet.Conn
	mac     net.HardwareAddr

	mu     sync.Mutex
	claims []claim
}

// claim is one frame by who says that the address is his.
type claim struct {
	at  time.Time
	mac string
}

// newCapture starts one, which ends with the test.
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
	// Frames from one machine to another, too.
	if err := c.conn.SetPromiscuous(true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { c.ask(ctx) })
	all.Go(c.read)
	t.Cleanup(func() {
		cancel()
		_ = c.conn.Close() // which ends the reader
		all.Wait()
	})
	return c
}

// ask asks as RFC 5227 does, without saying anything of one's own.
func (c *capture) ask(ctx context.Context) {
	frame := arpFrame(c.mac, netip.IPv4Unspecified(), c.address)
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = c.conn.WriteTo(frame, everybody) // the next one may get through
		}
	}
}

// everybody is Ethernet's broadcast address.
var everybody = &packet.Addr{HardwareAddr: net.HardwareAddr{255, 255, 255, 255, 255, 255}}

// arpFrame asks who has an address.
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

// claimants are the MAC addresses that had the address this moment.
func (c *capture) claimants() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var macs []string
	for _, claim := range slices.Backward(c.claims) {
		if time.Since(claim.at) > silence {
			break
		}
		macs = append(macs, claim.mac)
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}

// doubled is for how long more than one MAC address had the address since then: each of them from
// one claim to its next, unless it was silent between.
func (c *capture) doubled(since time.Time) (total time.Duration) {
	type step struct {
		at time.Time
		by int
	}
	var steps []step
	last := map[string]time.Time{}
	c.mu.Lock()
	for _, claim := range c.claims {
		if claim.at.Before(since) {
			continue
		}
		if before, ok := last[claim.mac]; ok && claim.at.Sub(before) < silence {
			steps = append(steps, step{before, 1}, step{claim.at, -1})
		}
		last[claim.mac] = claim.at
	}
	c.mu.Unlock()
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	have := 0
	for i, s := range steps {
		if have > 1 {
			total += s.at.Sub(steps[i-1].at)
		}
		have += s.by
	}
	return total
}

// TestDoubledIsTheTimeOfTwo measures what is known: claims of a, b and c, one every 50 ms, in
// words that are spoken at once where they have several letters.
func TestDoubledIsTheTimeOfTwo(t *testing.T) {
	for _, tc := range []struct {
		name   string
		claims []string
		want   time.Duration
	}{
		{"one", []string{"a", "a", "a"}, 0},
		{"one after the other", []string{"a", "a", "b", "b"}, 0},
		{"two at once", []string{"a", "ab", "ab", "b"}, 50 * time.Millisecond},
		{"two by turns", []string{"a", "b", "a", "b"}, 50 * time.Millisecond},
		{"three at once", []string{"abc", "abc", "abc"}, 100 * time.Millisecond},
		{"one who comes back after a silence", []string{"a", "b", "b", "b", "b", "b", "b", "b", "b", "b", "b", "b", "a"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			c := &capture{}
			for i, by := range tc.claims {
				for _, mac := range by {
					c.claims = append(c.claims, claim{began.Add(time.Duration(i) * askEvery), string(mac)})
				}
			}
			if got := c.doubled(began); got != tc.want {
				t.Errorf("two had it for %s, want %s", got, tc.want)
			}
		})
	}
}
