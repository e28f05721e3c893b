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

// A client is a machine on the near side of the VLAN. It connects to the proxy, and sends ARP requests for
// the floating address, at a constant rate.
type client struct {
	machine *lab.Machine
	conn    *packet.Conn // ARP socket

	mu      sync.Mutex
	dials   []dial
	asks    []time.Time
	answers []answer
}

type dial struct {
	at   time.Time
	done bool
	by   string // name of the replica; empty if there was no answer
}

type answer struct {
	at  time.Time
	mac string
}

const clientMAC = "02:00:00:00:01:00"

func newClient(t *testing.T, near, far string) *client {
	t.Helper()
	c := &client{machine: lab.NewMachine(t, near, clientMAC)}
	for _, address := range []string{"192.0.2.100/24", "2001:db8::100/64"} {
		c.machine.Run(t, "ip", "address", "add", address, "dev", c.machine.Device, "nodad")
	}
	// A host on the far side sends ARP requests, because a replica that hears no other host considers itself
	// cut off.
	other := lab.NewNamespace(t)
	if err := lab.Cable(lab.End{Bridge: far}, lab.End{In: other, Device: "eth0", Addresses: []string{"192.0.2.101/24"}}); err != nil {
		t.Fatal(err)
	}
	chatter := lab.NewDaemon(t, "the host on the far side", func() *exec.Cmd {
		return other.Command(context.Background(), "busybox", "arping", "-I", "eth0", "-q", "192.0.2.102")
	})
	chatter.Start(t)
	c.conn = arpSocket(t, c.machine)
	return c
}

// arpSocket returns an ARP socket on the interface of a machine.
func arpSocket(t *testing.T, m *lab.Machine) (conn *packet.Conn) {
	t.Helper()
	err := m.Do(func() error {
		i, err := net.InterfaceByName(m.Device)
		if err == nil {
			conn, err = packet.Listen(i, packet.Datagram, unix.ETH_P_ARP, nil)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// claim broadcasts an ARP request (1) or reply (2) for the floating address, from a MAC address and a sender IP
// address.
func claim(conn *packet.Conn, operation byte, mac string, sender netip.Addr) error {
	by, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	from, at := sender.As4(), floating.As4()
	frame := slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, operation}, by, from[:], make([]byte, 6), at[:])
	_, err = conn.WriteTo(frame, &packet.Addr{HardwareAddr: net.HardwareAddr{255, 255, 255, 255, 255, 255}})
	return err
}

// start starts connections and ARP requests, until the test ends.
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
	every(askEvery, c.ask)
	all.Go(c.read)
	t.Cleanup(func() {
		cancel()
		_ = c.conn.Close()
		all.Wait()
	})
}

// dial connects and reads the replica's name. It gives up before the kernel retransmits the SYN after a
// second.
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

func (c *client) ask() {
	c.mu.Lock()
	c.asks = append(c.asks, time.Now())
	c.mu.Unlock()
	_ = claim(c.conn, 1, clientMAC, netip.IPv4Unspecified()) // a lost request has no answer
}

// read records replies to this client's requests, but not announcements.
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

// answeringMACs returns the MAC addresses that replied to the last n ARP requests.
func (c *client) answeringMACs(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asks) < n {
		return nil
	}
	since := c.asks[len(c.asks)-n]
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

// timeWithTwoHolders returns for how long since a time more than one MAC address replied.
func (c *client) timeWithTwoHolders(since time.Time) time.Duration {
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

// timeWithoutService returns for how long since a time there was no service: the times from each failed
// connection to the next successful one. It waits until connections succeed again.
func (c *client) timeWithoutService(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	const enough = 20 // successful connections in a row
	lab.Poll(t, "connections to succeed again", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		succeeded := 0
		for _, d := range slices.Backward(c.dials) {
			switch {
			case !d.done:
				continue
			case d.by == "" || d.at.Before(since):
				return false
			}
			if succeeded++; succeeded == enough {
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
