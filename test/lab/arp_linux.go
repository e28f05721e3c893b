package lab

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
	// arpInterval is the interval of an ARPWatch's probes.
	arpInterval = 50 * time.Millisecond
	// holdTimeout is the time after which a MAC address that has replied no longer holds the address.
	holdTimeout = 10 * arpInterval
)

// An ARPWatch sends ARP probes (RFC 5227) for an address, which claim no address themselves, at a constant rate, and records which MAC
// addresses reply.
type ARPWatch struct {
	address netip.Addr
	conn    *packet.Conn
	mac     net.HardwareAddr
	started time.Time

	mu      sync.Mutex
	replies []arpReply
}

type arpReply struct {
	at  time.Time
	mac string
}

// WatchARP starts an ARPWatch on an interface that runs until the test ends.
func WatchARP(tb testing.TB, in *Namespace, device string, address netip.Addr) *ARPWatch {
	tb.Helper()
	w := &ARPWatch{address: address, started: time.Now()}
	w.conn, w.mac = ARPSocket(tb, in, device)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(arpInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = SendARP(w.conn, 1, w.mac, netip.IPv4Unspecified(), w.address) // an error affects only this probe
			}
		}
	})
	all.Go(w.read)
	tb.Cleanup(func() {
		cancel()
		_ = w.conn.Close() // ends the reader
		all.Wait()
	})
	return w
}

// ARPSocket returns an ARP socket on an interface, and the MAC address of the interface.
func ARPSocket(tb testing.TB, in *Namespace, device string) (conn *packet.Conn, mac net.HardwareAddr) {
	tb.Helper()
	Must(tb, in.Do(func() error {
		i, err := net.InterfaceByName(device)
		if err == nil {
			mac = i.HardwareAddr
			conn, err = packet.Listen(i, packet.Datagram, unix.ETH_P_ARP, nil)
		}
		return err
	}))
	return conn, mac
}

// SendARP broadcasts an ARP request (1) or reply (2) for target, from a MAC address and a sender IP address.
func SendARP(conn *packet.Conn, operation byte, mac net.HardwareAddr, sender, target netip.Addr) error {
	frame := slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, operation}, mac, sender.AsSlice(), make([]byte, 6), target.AsSlice())
	_, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: net.HardwareAddr{255, 255, 255, 255, 255, 255}})
	return err
}

// read records replies to probes, whose target is the unspecified address, but not announcements.
func (w *ARPWatch) read() {
	frame := make([]byte, 128)
	for {
		n, _, err := w.conn.ReadFrom(frame)
		if err != nil {
			return
		}
		if n >= 28 && frame[7] == 2 && netip.AddrFrom4([4]byte(frame[14:18])) == w.address && netip.AddrFrom4([4]byte(frame[24:28])).IsUnspecified() {
			w.mu.Lock()
			w.replies = append(w.replies, arpReply{time.Now(), net.HardwareAddr(frame[8:14]).String()})
			w.mu.Unlock()
		}
	}
}

// Holders returns the MAC addresses that have replied within the last duration, or none before the watch has run that long.
func (w *ARPWatch) Holders(within time.Duration) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var macs []string
	for _, r := range slices.Backward(w.replies) {
		if time.Since(r.at) > within || time.Since(w.started) < within {
			break
		}
		macs = append(macs, r.mac)
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}

// TimeWithTwoHolders returns for how long since a time more than one MAC address replied. A MAC address holds the address from each
// reply to its next one, unless these are holdTimeout or more apart.
func (w *ARPWatch) TimeWithTwoHolders(since time.Time) (total time.Duration) {
	type step struct {
		at     time.Time
		change int
	}
	var steps []step
	last := map[string]time.Time{}
	w.mu.Lock()
	for _, r := range w.replies {
		if r.at.Before(since) {
			continue
		}
		if before, ok := last[r.mac]; ok && r.at.Sub(before) < holdTimeout {
			steps = append(steps, step{before, 1}, step{r.at, -1})
		}
		last[r.mac] = r.at
	}
	w.mu.Unlock()
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
