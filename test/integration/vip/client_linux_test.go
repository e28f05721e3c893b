package vip_test

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/test/lab"
)

const (
	dialEvery = 100 * time.Millisecond
	askEvery  = 50 * time.Millisecond
)

// A client is a machine on the near side of the VLAN. It connects to the proxy all the time, and
// asks all the time who has its address.
type client struct {
	trunk string // the cable to the far side

	machine *lab.Namespace
	conn    *packet.Conn // for ARP
	mac     net.HardwareAddr

	mu      sync.Mutex
	dials   []dial
	asks    []time.Time
	answers []answer
}

type dial struct {
	at   time.Time
	done bool
	by   string // empty where there was no answer
}

type answer struct {
	at  time.Time
	mac string
}

func newClient(t *testing.T, trunk, near, far string) *client {
	t.Helper()
	c := &client{trunk: trunk, machine: lab.NewNamespace(t)}
	c.mac, _ = net.ParseMAC("02:00:00:00:01:00")
	if err := lab.Cable(lab.End{Bridge: near}, lab.End{In: c.machine, Device: "eth0", MAC: c.mac.String(), Addresses: []string{"192.0.2.100/24", "2001:db8::100/64"}}); err != nil {
		t.Fatal(err)
	}
	// Somebody is on the far side, too, who is heard there.
	other := lab.NewNamespace(t)
	if err := lab.Cable(lab.End{Bridge: far}, lab.End{In: other, Device: "eth0", Addresses: []string{"192.0.2.101/24"}}); err != nil {
		t.Fatal(err)
	}
	chatter := lab.NewDaemon(t, "the machine on the far side", func() *exec.Cmd {
		return other.Command(context.Background(), "busybox", "arping", "-I", "eth0", "-q", "192.0.2.102")
	})
	chatter.Start(t)
	err := c.machine.Do(func() (err error) {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			c.conn, err = packet.Listen(i, packet.Datagram, unix.ETH_P_ARP, nil)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start has the client do so until the test ends.
func (c *client) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	every := func(d time.Duration, do func()) {
		all.Go(func() {
			tick := time.NewTicker(d)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					do()
				}
			}
		})
	}
	every(dialEvery, func() { all.Go(func() { c.dial(ctx) }) })
	every(askEvery, func() { c.ask() })
	all.Go(c.read)
	t.Cleanup(func() {
		cancel()
		_ = c.conn.Close()
		all.Wait()
	})
}

// dial makes a connection and reads who is there. It does not wait for a second packet, of which
// the kernel sends the first after a second.
func (c *client) dial(ctx context.Context) {
	c.mu.Lock()
	n := len(c.dials)
	c.dials = append(c.dials, dial{at: time.Now()})
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 900*time.Millisecond)
	defer cancel()
	by, _ := c.machine.Greeting(ctx, netip.Addr{}, netip.AddrPortFrom(floating, port))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dials[n].done, c.dials[n].by = true, by
}

// frame is an ARP request for the floating address.
func frame(operation byte, by net.HardwareAddr, sender netip.Addr) []byte {
	from, at := sender.As4(), floating.As4()
	f := append([]byte{0, 1, 8, 0, 6, 4, 0, operation}, by...)
	f = append(append(f, from[:]...), 0, 0, 0, 0, 0, 0)
	return append(f, at[:]...)
}

func (c *client) send(f []byte) {
	_, _ = c.conn.WriteTo(f, &packet.Addr{HardwareAddr: net.HardwareAddr{255, 255, 255, 255, 255, 255}})
}

func (c *client) ask() {
	c.mu.Lock()
	c.asks = append(c.asks, time.Now())
	c.mu.Unlock()
	c.send(frame(1, c.mac, netip.IPv4Unspecified()))
}

// read takes down who answers; announcements are none.
func (c *client) read() {
	buffer := make([]byte, 128)
	for {
		n, _, err := c.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		if n >= 28 && buffer[7] == 2 && netip.AddrFrom4([4]byte(buffer[14:18])) == floating && buffer[24] == 0 {
			c.mu.Lock()
			c.answers = append(c.answers, answer{time.Now(), net.HardwareAddr(buffer[8:14]).String()})
			c.mu.Unlock()
		}
	}
}

// answering returns the MAC addresses that answered the last questions, so many.
func (c *client) answering(questions int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asks) < questions {
		return nil
	}
	since := c.asks[len(c.asks)-questions]
	var macs []string
	for _, a := range slices.Backward(c.answers) {
		if a.at.Before(since) {
			break
		}
		macs = append(macs, a.mac)
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}

// doubled is for how long more than one MAC address answered since then.
func (c *client) doubled(since time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var total time.Duration
	n := 0
	for i, asked := range c.asks {
		if asked.Before(since) {
			continue
		}
		until := time.Now()
		if i+1 < len(c.asks) {
			until = c.asks[i+1]
		}
		macs := map[string]bool{}
		for ; n < len(c.answers) && c.answers[n].at.Before(until); n++ {
			if !c.answers[n].at.Before(asked) {
				macs[c.answers[n].mac] = true
			}
		}
		if len(macs) > 1 {
			total += until.Sub(asked)
		}
	}
	return total
}

// without is for how long there was no service since then: from each question without an answer
// to the next one that has one, added up. It waits until there is service now.
func (c *client) without(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	const enough = 20 // connections in a row
	lab.Poll(t, "connections to get through again", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		got := 0
		for _, d := range slices.Backward(c.dials) {
			switch {
			case !d.done:
				continue
			case d.by == "" || d.at.Before(since):
				return false
			}
			if got++; got == enough {
				return true
			}
		}
		return false
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	var total time.Duration
	var lost time.Time
	for _, d := range c.dials {
		switch {
		case d.at.Before(since) || !d.done:
		case d.by == "" && lost.IsZero():
			lost = d.at
		case d.by != "" && !lost.IsZero():
			total, lost = total+d.at.Sub(lost), time.Time{}
		}
	}
	return total
}
