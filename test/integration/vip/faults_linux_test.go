package vip_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// maxTwoHolders is the maximum time during which two replicas may answer for the address: a holder that
// cannot renew its Lease considers it its own for that long.
const maxTwoHolders = 10 * time.Second

// A fault is a failure of the holder, or of components that all replicas use.
type fault struct {
	name string
	// inject injects the fault. repair ends it, unless it ends by itself.
	inject func(t *testing.T, s *site, holder *replica) (repair func())
	// moves is set if another replica gets the address.
	moves bool
	// duration is for how long to wait before the repair if the address does not move.
	duration time.Duration
	// needsAPI is set if only an implementation that uses the API server detects the fault.
	needsAPI bool
	// long faults are only injected at full length.
	long bool
}

// powerOff simulates a node without power.
func powerOff(t *testing.T, _ *site, i *replica) (repair func()) {
	t.Helper()
	i.Kill(t)
	link(t, i.port, "down")
	link(t, i.uplink, "down")
	return func() {
		i.flushAddress(t)
		link(t, i.port, "up")
		link(t, i.uplink, "up")
		i.Start(t)
	}
}

// flushAddress removes the floating addresses that a killed process has left, as the end of its pod does.
func (i *replica) flushAddress(t *testing.T) {
	t.Helper()
	i.Run(t, "ip", "address", "flush", "dev", "net1", "to", floating.String())
	i.Run(t, "ip", "-6", "address", "flush", "dev", "net1", "to", floating6.String())
}

// combine combines two faults.
func combine(a, b func(*testing.T, *site, *replica) func()) func(*testing.T, *site, *replica) func() {
	return func(t *testing.T, s *site, i *replica) func() {
		t.Helper()
		first := a(t, s, i)
		second := b(t, s, i)
		return func() { second(); first() }
	}
}

func apiServerDown(t *testing.T, s *site, _ *replica) (repair func()) {
	t.Helper()
	outage := lab.StartOutage(t, s.cp)
	return func() { outage.End(t) }
}

func notReady(t *testing.T, _ *site, i *replica) (repair func()) {
	t.Helper()
	i.notReady.Store(true)
	return func() { i.notReady.Store(false) }
}

func noneReady(t *testing.T, s *site, _ *replica) (repair func()) {
	t.Helper()
	for _, i := range s.replicas {
		i.notReady.Store(true)
	}
	return func() {
		for _, i := range s.replicas {
			i.notReady.Store(false)
		}
	}
}

func partition(t *testing.T, s *site, _ *replica) (repair func()) {
	t.Helper()
	link(t, s.trunk, "down")
	return func() { link(t, s.trunk, "up") }
}

var faults = []fault{
	{name: "terminated", moves: true, inject: func(t *testing.T, s *site, i *replica) func() {
		t.Helper()
		s.implementation.end(t, i)
		return func() { i.Start(t) }
	}},
	{name: "killed and restarted", duration: 5 * time.Second, inject: func(t *testing.T, _ *site, i *replica) func() {
		t.Helper()
		i.Kill(t)
		i.Start(t)
		return func() {}
	}},
	{name: "killed", moves: true, inject: func(t *testing.T, _ *site, i *replica) func() {
		t.Helper()
		i.Kill(t)
		return func() { i.Start(t) }
	}},
	{name: "node without power", long: true, moves: true, inject: powerOff},
	{name: "cable to the VLAN unplugged", long: true, moves: true, inject: func(t *testing.T, _ *site, i *replica) func() {
		t.Helper()
		link(t, i.port, "down")
		return func() { link(t, i.port, "up") }
	}},
	{name: "proxy not ready", moves: true, inject: notReady},
	{name: "no proxy ready", long: true, duration: 5 * time.Second, inject: noneReady},
	{name: "holder without management network", moves: true, needsAPI: true, inject: func(t *testing.T, _ *site, i *replica) func() {
		t.Helper()
		link(t, i.uplink, "down")
		return func() { link(t, i.uplink, "up") }
	}},
	{name: "API server down", duration: 15 * time.Second, inject: apiServerDown},
	{name: "API server down, node without power", long: true, moves: true, inject: combine(apiServerDown, powerOff)},
	{name: "API server down, killed and restarted", long: true, duration: 8 * time.Second, inject: combine(apiServerDown, func(t *testing.T, _ *site, i *replica) func() {
		t.Helper()
		i.Kill(t)
		i.Start(t)
		return func() {}
	})},
	{name: "API server down, proxy not ready", long: true, moves: true, inject: combine(apiServerDown, notReady)},
	{name: "VLAN partitioned", duration: 10 * time.Second, inject: partition},
	{name: "VLAN partitioned, API server down", long: true, duration: 15 * time.Second, inject: combine(apiServerDown, partition)},
}

// TestFaults injects each fault, and measures for how long there is no service on the near side of the VLAN,
// and for how long two replicas answer for the address.
func TestFaults(t *testing.T) { testFaults(t, xdsdHold) }

// TestFaultsOfKeepalived is TestFaults with keepalived.
func TestFaultsOfKeepalived(t *testing.T) {
	if !*compareKeepalived {
		t.Skip("needs the flag -keepalived")
	}
	if _, err := os.Stat(keepalivedPath); err != nil {
		t.Fatal(err)
	}
	testFaults(t, keepalived)
}

func testFaults(t *testing.T, k implementation) {
	s := newSite(t, k, 2)
	t.Logf("| %s | seconds without service | seconds with two holders | ... after the repair |", k.name)
	for _, f := range faults {
		if f.long && !lab.Long() && k.name == xdsdHold.name {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			holder := s.holder(t)
			if k.name == xdsdHold.name {
				s.awaitPeers(t)
			}
			from := time.Now()
			repair := f.inject(t, s, holder)
			if f.moves && (k.name == xdsdHold.name || !f.needsAPI) {
				lab.Poll(t, "another replica to answer", func() bool {
					macs := s.answeringMACs(4)
					return len(macs) > 1 || len(macs) == 1 && macs[0] != holder.mac
				})
			}
			time.Sleep(f.duration)
			noService, twoHolders := s.timeWithoutService(t, from), s.timeWithTwoHolders(from)
			repaired := time.Now()
			repair()
			if k.name != xdsdHold.name {
				time.Sleep(5 * time.Second)
				if macs := s.answeringMACs(20); len(macs) > 1 {
					t.Logf("five seconds after the repair, %v answer", macs)
					holder.flushAddress(t)
				}
			}
			var now *replica
			if k.name == xdsdHold.name {
				now = s.awaitSingleHolder(t)
			} else {
				now = s.holder(t)
			}
			noService += s.timeWithoutService(t, repaired)
			after := s.timeWithTwoHolders(repaired)
			t.Logf("| %s | %.1f | %.2f | %.2f | (%s to %s)", f.name, noService.Seconds(), twoHolders.Seconds(), after.Seconds(), holder.name, now.name)
			if k.name != xdsdHold.name {
				return
			}
			if twoHolders+after > maxTwoHolders {
				t.Errorf("two replicas answered for %s, and for %s after the repair", twoHolders, after)
			}
			if !f.moves && f.duration > 0 && now != holder && f.name != "VLAN partitioned, API server down" && f.name != "VLAN partitioned" {
				t.Errorf("%s has the address, want %s", now.name, holder.name)
			}
		})
	}
}

// awaitSingleHolder waits until one replica has the address and the Lease, and all replicas agree.
func (s *site) awaitSingleHolder(t *testing.T) (holder *replica) {
	t.Helper()
	lab.Poll(t, "one replica to have the address and the Lease", func() bool {
		holder = nil
		names := map[string]bool{}
		for _, i := range s.replicas {
			state := i.state(t)
			names[state.LeaseHolder] = true
			if state.Holding && holder != nil {
				return false
			}
			if state.Holding {
				holder = i
			}
		}
		return holder != nil && len(names) == 1 && names[holder.name] && slices.Equal(s.answeringMACs(4), []string{holder.mac})
	})
	return holder
}
