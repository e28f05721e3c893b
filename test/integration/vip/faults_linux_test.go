package vip_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// maxTwoHolders is the maximum time during which two replicas may answer for the address: a holder that
// cannot renew its Lease considers it its own for that long.
const maxTwoHolders = 10 * time.Second

// An injector injects a fault of the holder, or of components that all replicas use. repair ends the fault.
type injector func(t *testing.T, s *site, holder *replica) (repair func())

// combine combines two faults.
func combine(a, b injector) injector {
	return func(t *testing.T, s *site, i *replica) func() {
		t.Helper()
		first, second := a(t, s, i), b(t, s, i)
		return func() { second(); first() }
	}
}

// unplug sets an interface of the test's network down.
func unplug(device func(*site, *replica) string) injector {
	return func(t *testing.T, s *site, i *replica) func() {
		t.Helper()
		link(t, device(s, i), "down")
		return func() { link(t, device(s, i), "up") }
	}
}

// killProcess kills the holder's process, and restarts it immediately or as repair.
func killProcess(restart bool) injector {
	return func(t *testing.T, _ *site, i *replica) func() {
		t.Helper()
		i.Kill(t)
		if restart {
			i.Start(t)
			return func() {}
		}
		return func() { i.Start(t) }
	}
}

// unready makes the proxies of replicas not ready.
func unready(which func(*site, *replica) []*replica) injector {
	return func(_ *testing.T, s *site, i *replica) func() {
		set := func(value bool) {
			for _, r := range which(s, i) {
				r.notReady.Store(value)
			}
		}
		set(true)
		return func() { set(false) }
	}
}

// powerOff simulates a node without power.
func powerOff(t *testing.T, s *site, i *replica) (repair func()) {
	t.Helper()
	i.Kill(t)
	plug := combine(unplugPort, unplugUplink)(t, s, i)
	return func() {
		// The end of a pod removes the addresses that a killed process has left.
		i.Run(t, "ip", "address", "flush", "dev", "net1", "to", floating.String())
		i.Run(t, "ip", "-6", "address", "flush", "dev", "net1", "to", floating6.String())
		plug()
		i.Start(t)
	}
}

func apiServerDown(t *testing.T, s *site, _ *replica) (repair func()) {
	t.Helper()
	outage := lab.StartOutage(t, s.cp)
	return func() { outage.End(t) }
}

var (
	unplugPort   = unplug(func(_ *site, i *replica) string { return i.port })
	unplugUplink = unplug(func(_ *site, i *replica) string { return i.uplink })
	partition    = unplug(func(s *site, _ *replica) string { return s.trunk })
	notReady     = unready(func(_ *site, i *replica) []*replica { return []*replica{i} })
)

// TestFaults injects each fault, and measures for how long there is no service on the near side of the VLAN,
// and for how long two replicas answer for the address.
func TestFaults(t *testing.T) {
	s := newSite(t, 2, true)
	t.Log("| seconds without service | seconds with two holders | ... after the repair |")
	for _, f := range []struct {
		name   string
		inject injector
		// moves is set if another replica gets the address. stays is for how long to wait, before the repair, for
		// one that keeps it.
		moves bool
		stays time.Duration
		// long faults are only injected at full length.
		long bool
	}{
		{name: "terminated", moves: true, inject: func(t *testing.T, _ *site, i *replica) func() {
			t.Helper()
			i.Terminate(t)
			return func() { i.Start(t) }
		}},
		{name: "killed and restarted", stays: 5 * time.Second, inject: killProcess(true)},
		{name: "killed", moves: true, inject: killProcess(false)},
		{name: "node without power", long: true, moves: true, inject: powerOff},
		{name: "cable to the VLAN unplugged", long: true, moves: true, inject: unplugPort},
		{name: "proxy not ready", moves: true, inject: notReady},
		{name: "no proxy ready", long: true, stays: 5 * time.Second, inject: unready(func(s *site, _ *replica) []*replica { return s.replicas })},
		{name: "holder without management network", moves: true, inject: unplugUplink},
		{name: "API server down", stays: 15 * time.Second, inject: apiServerDown},
		{name: "API server down, node without power", long: true, moves: true, inject: combine(apiServerDown, powerOff)},
		{name: "API server down, killed and restarted", long: true, stays: 8 * time.Second, inject: combine(apiServerDown, killProcess(true))},
		{name: "API server down, proxy not ready", long: true, moves: true, inject: combine(apiServerDown, notReady)},
		{name: partitioned, stays: 10 * time.Second, inject: partition},
		{name: partitioned + ", API server down", long: true, stays: 15 * time.Second, inject: combine(apiServerDown, partition)},
	} {
		if f.long && !lab.Long() {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			holder := s.holder(t)
			s.awaitPeers(t)
			from := time.Now()
			repair := f.inject(t, s, holder)
			if f.moves {
				lab.Poll(t, "another replica to answer", func() bool {
					return slices.ContainsFunc(s.Holders(briefly), func(mac string) bool { return mac != holder.mac })
				})
			}
			time.Sleep(f.stays)
			noService, twoHolders := s.timeWithoutService(t, from), s.TimeWithTwoHolders(from)
			repaired := time.Now()
			repair()
			now := s.awaitSingleHolder(t)
			noService += s.timeWithoutService(t, repaired)
			after := s.TimeWithTwoHolders(repaired)
			t.Logf("| %s | %.1f | %.2f | %.2f | (%s to %s)", f.name, noService.Seconds(), twoHolders.Seconds(), after.Seconds(), holder.name, now.name)
			if twoHolders+after > maxTwoHolders {
				t.Errorf("two replicas answered for %s, and for %s after the repair", twoHolders, after)
			}
			// Of the two parts of a VLAN, each has a holder; either may keep the address.
			if !f.moves && now != holder && !strings.HasPrefix(f.name, partitioned) {
				t.Errorf("%s has the address, want %s", now.name, holder.name)
			}
		})
	}
}

const partitioned = "VLAN partitioned"

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
		return holder != nil && len(names) == 1 && names[holder.name] && slices.Equal(s.Holders(briefly), []string{holder.mac})
	})
	return holder
}
