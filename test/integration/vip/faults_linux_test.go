package vip_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// bound is for how long two may answer for the address at most: a holder that cannot renew its
// Lease takes it for its own that long.
const bound = 10 * time.Second

// A fault befalls the holder, or everybody, and is mended.
type fault struct {
	name string
	// strike strikes the holder. mend mends what does not mend by itself.
	strike func(t *testing.T, s *site, holder *instance) (mend func())
	// moves says that another instance has the address then.
	moves bool
	// for how long it lasts where the address does not move.
	lasts time.Duration
	// needsAPI says that who does not use the API server notices nothing of it.
	needsAPI bool
	// long: only in a long test.
	long bool
}

// cutOff is a node without power, as the network sees it.
func cutOff(t *testing.T, _ *site, i *instance) (mend func()) {
	t.Helper()
	i.Kill(t)
	link(t, i.port, "down")
	link(t, i.uplink, "down")
	return func() {
		i.forget(t)
		link(t, i.port, "up")
		link(t, i.uplink, "up")
		i.Start(t)
	}
}

// forget removes the address where who held it has left it, as the end of a pod does.
func (i *instance) forget(t *testing.T) {
	t.Helper()
	i.Run(t, "ip", "address", "flush", "dev", "net1", "to", floating.String())
	i.Run(t, "ip", "-6", "address", "flush", "dev", "net1", "to", floating6.String())
}

// both has two faults at once.
func both(a, b func(*testing.T, *site, *instance) func()) func(*testing.T, *site, *instance) func() {
	return func(t *testing.T, s *site, i *instance) func() {
		t.Helper()
		first := a(t, s, i)
		second := b(t, s, i)
		return func() { second(); first() }
	}
}

func apiAway(t *testing.T, s *site, _ *instance) (mend func()) {
	t.Helper()
	outage := lab.StartOutage(t, s.cp)
	return func() { outage.End(t) }
}

func notReady(t *testing.T, _ *site, i *instance) (mend func()) {
	t.Helper()
	i.notReady.Store(true)
	return func() { i.notReady.Store(false) }
}

func noneReady(t *testing.T, s *site, _ *instance) (mend func()) {
	t.Helper()
	for _, i := range s.instances {
		i.notReady.Store(true)
	}
	return func() {
		for _, i := range s.instances {
			i.notReady.Store(false)
		}
	}
}

func partition(t *testing.T, s *site, _ *instance) (mend func()) {
	t.Helper()
	link(t, s.trunk, "down")
	return func() { link(t, s.trunk, "up") }
}

var faults = []fault{
	{name: "asked to end", moves: true, strike: func(t *testing.T, s *site, i *instance) func() {
		t.Helper()
		s.kind.end(t, i)
		return func() { i.Start(t) }
	}},
	{name: "killed and started again", lasts: 5 * time.Second, strike: func(t *testing.T, _ *site, i *instance) func() {
		t.Helper()
		i.Kill(t)
		i.Start(t)
		return func() {}
	}},
	{name: "killed for good", moves: true, strike: func(t *testing.T, _ *site, i *instance) func() {
		t.Helper()
		i.Kill(t)
		return func() { i.Start(t) }
	}},
	{name: "node without power", long: true, moves: true, strike: cutOff},
	{name: "cable to the VLAN unplugged", long: true, moves: true, strike: func(t *testing.T, _ *site, i *instance) func() {
		t.Helper()
		link(t, i.port, "down")
		return func() { link(t, i.port, "up") }
	}},
	{name: "proxy not ready", moves: true, strike: notReady},
	{name: "no proxy ready", long: true, lasts: 5 * time.Second, strike: noneReady},
	{name: "management network away from the holder", moves: true, needsAPI: true, strike: func(t *testing.T, _ *site, i *instance) func() {
		t.Helper()
		link(t, i.uplink, "down")
		return func() { link(t, i.uplink, "up") }
	}},
	{name: "API server away", lasts: 15 * time.Second, strike: apiAway},
	{name: "API server away, node without power", long: true, moves: true, strike: both(apiAway, cutOff)},
	{name: "API server away, killed and started again", long: true, lasts: 8 * time.Second, strike: both(apiAway, func(t *testing.T, _ *site, i *instance) func() {
		t.Helper()
		i.Kill(t)
		i.Start(t)
		return func() {}
	})},
	{name: "API server away, proxy not ready", long: true, moves: true, strike: both(apiAway, notReady)},
	{name: "VLAN in two halves", lasts: 10 * time.Second, strike: partition},
	{name: "VLAN in two halves, API server away", long: true, lasts: 15 * time.Second, strike: both(apiAway, partition)},
}

// TestFaults has each fault befall the holder, and shows for how long there is no service on the
// near side of the VLAN, and for how long two answer for the address.
func TestFaults(t *testing.T) { suffer(t, ours) }

// TestFaultsOfKeepalived is the same for the peer.
func TestFaultsOfKeepalived(t *testing.T) {
	if !*withPeer {
		t.Skip("-keepalived is not given")
	}
	if _, err := os.Stat(keepalivedPath); err != nil {
		t.Fatal(err)
	}
	suffer(t, keepalived)
}

func suffer(t *testing.T, k kind) {
	s := newSite(t, k, 2)
	t.Logf("| %s | seconds without service | seconds with two that answer | ... after mending |", k.name)
	for _, f := range faults {
		if f.long && !lab.Long() && k.name == ours.name {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			holder := s.holder(t)
			if k.name == ours.name {
				s.known(t)
			}
			from := time.Now()
			mend := f.strike(t, s, holder)
			if f.moves && (k.name == ours.name || !f.needsAPI) {
				lab.Poll(t, "another instance to answer", func() bool {
					macs := s.answering(4)
					return len(macs) > 1 || len(macs) == 1 && macs[0] != holder.mac
				})
			}
			time.Sleep(f.lasts)
			without, doubled := s.without(t, from), s.doubled(from)
			mended := time.Now()
			mend()
			if k.name != ours.name {
				time.Sleep(5 * time.Second)
				if macs := s.answering(20); len(macs) > 1 {
					t.Logf("five seconds after mending, %v answer", macs)
					holder.forget(t)
				}
			}
			var now *instance
			if k.name == ours.name {
				now = s.settled(t)
			} else {
				now = s.holder(t)
			}
			without += s.without(t, mended)
			after := s.doubled(mended)
			t.Logf("| %s | %.1f | %.2f | %.2f | (%s to %s)", f.name, without.Seconds(), doubled.Seconds(), after.Seconds(), holder.name, now.name)
			if k.name != ours.name {
				return
			}
			if doubled+after > bound {
				t.Errorf("two answered for %s and, once it was mended, for %s", doubled, after)
			}
			if !f.moves && f.lasts > 0 && now != holder && f.name != "VLAN in two halves, API server away" && f.name != "VLAN in two halves" {
				t.Errorf("%s has it, not %s", now.name, holder.name)
			}
		})
	}
}

// settled waits until one instance of ours has the address and the Lease, and all know.
func (s *site) settled(t *testing.T) (holder *instance) {
	t.Helper()
	lab.Poll(t, "one to have the address and the Lease", func() bool {
		holder = nil
		names := map[string]bool{}
		for _, i := range s.instances {
			state := i.state(t)
			names[state.LeaseHolder] = true
			if state.Holding && holder != nil {
				return false
			}
			if state.Holding {
				holder = i
			}
		}
		return holder != nil && len(names) == 1 && names[holder.name] && slices.Equal(s.answering(4), []string{holder.mac})
	})
	return holder
}
