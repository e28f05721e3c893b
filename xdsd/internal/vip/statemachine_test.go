package vip

import (
	"net/netip"
	"testing"
	"time"
)

var (
	start      = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	lowerMAC   = mac{2, 0, 0, 0, 0, 0x01}
	higherMAC  = mac{2, 0, 0, 0, 0, 0xf1}
	tenantMAC  = mac{2, 0, 0, 0, 9, 9}
	testLeased = parsedFrame{Sender: higherMAC, Address: test4, Leased: true}
)

// standbyMachine returns a standby replica "middle" with two peers, "lower" and "higher" by MAC address. Its proxy is
// ready, it watches the Lease, and "lower" has the Lease.
func standbyMachine() *stateMachine {
	m := &stateMachine{identity: "middle", self: testMAC, addresses: []netip.Addr{test4, test6}, conflicts: map[string]int{}}
	m.setUp(start, true)
	m.setReady(start, true)
	m.setWatching(start, true)
	m.setLease(start, time.Time{}, leaseRecord{holder: "lower", renewed: "1", version: 1, macs: map[string]mac{"lower": lowerMAC, "middle": testMAC, "higher": higherMAC}})
	return m
}

// holderMachine returns a standbyMachine that has claimed the address, with the Lease or, while the API server is
// unavailable, without it, and the time of the claim.
func holderMachine(leased bool) (*stateMachine, time.Time) {
	m, now := standbyMachine(), start.Add(time.Minute)
	m.claim(now, "test")
	r := m.lease
	r.version, r.holder = 2, "middle"
	m.setLease(now, time.Time{}, r)
	m.apiFailed = !leased
	if leased {
		m.leasedUntil = now.Add(leaseDuration)
	}
	return m, now
}

func TestHolderReceivesClaims(t *testing.T) {
	for _, tc := range []struct {
		name          string
		leased        bool
		frame         parsedFrame
		drop, counted bool
	}{
		{"with the Lease, from a lower MAC address", true, parsedFrame{Sender: lowerMAC, Address: test4}, false, true},
		{"with the Lease, from a peer that announces to have it", true, testLeased, false, true},
		{"with the Lease, from a tenant", true, parsedFrame{Sender: tenantMAC, Address: test4, Leased: true}, false, true},
		{"without the Lease, from a lower MAC address", false, parsedFrame{Sender: lowerMAC, Address: test4}, true, true},
		{"without the Lease, by IPv6", false, parsedFrame{Sender: lowerMAC, Address: test6}, true, true},
		{"without the Lease, from a higher MAC address", false, parsedFrame{Sender: higherMAC, Address: test4}, false, true},
		{"without the Lease, from a higher MAC address with the Lease", false, testLeased, true, true},
		{"without the Lease, from a tenant", false, parsedFrame{Sender: tenantMAC, Address: test4, Leased: true}, false, true},
		{"without the Lease, from itself", false, parsedFrame{Sender: testMAC, Address: test4}, false, false},
		{"without the Lease, of another address", false, parsedFrame{Sender: lowerMAC, Address: netip.MustParseAddr("192.0.2.5")}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, now := holderMachine(tc.leased)
			do := m.handleFrame(now, tc.frame)
			if do.drop != tc.drop || m.holding == tc.drop {
				t.Errorf("%+v", do)
			}
			if do.announce != (tc.counted && !tc.drop) {
				t.Errorf("announces the address: %t", do.announce)
			}
			if counted := m.conflicts["peer"]+m.conflicts["stranger"] > 0; counted != tc.counted {
				t.Errorf("counted as a conflict: %t, want %t", counted, tc.counted)
			}
		})
	}
}

// TestRepliesToClaimsAreLimited sends a tenant's claims every millisecond for ten seconds.
func TestRepliesToClaimsAreLimited(t *testing.T) {
	m, now := holderMachine(true)
	announced := 0
	for end := now.Add(10 * time.Second); now.Before(end); now = now.Add(time.Millisecond) {
		if m.handleFrame(now, parsedFrame{Sender: tenantMAC, Address: test4}).announce {
			announced++
		}
	}
	if announced != 10 {
		t.Errorf("%d announcements in ten seconds, want 10", announced)
	}
	if !m.handleFrame(now, parsedFrame{Sender: higherMAC, Address: test4}).announce {
		t.Error("the limit for a tenant's claims applies to a peer's claim")
	}
}

func TestDecideHolder(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*stateMachine)
		want   actions
	}{
		{"renewal is not due", func(m *stateMachine) { m.renewAt = m.since.Add(time.Hour) }, actions{}},
		{"renewal is due", func(*stateMachine) {}, actions{request: renew}},
		{"not ready", func(m *stateMachine) { m.ready = false }, actions{request: release}},
		{"not ready, without peers", func(m *stateMachine) { m.ready = false; m.lease.macs = map[string]mac{"middle": testMAC} }, actions{request: renew}},
		{"terminating", func(m *stateMachine) { m.terminating = true }, actions{request: release}},
		{"no carrier", func(m *stateMachine) { m.up = false }, actions{drop: true, reason: "the interface has no carrier"}},
		{"the Lease was not renewed in time", func(m *stateMachine) { m.leasedUntil = time.Time{} }, actions{request: acquire}},
		{"a peer has the Lease and does not answer", func(m *stateMachine) { m.lease.holder = "lower"; m.leasedUntil = time.Time{} }, actions{}},
		{"a peer has the Lease and answers", func(m *stateMachine) {
			m.lease.holder, m.leasedUntil = "higher", time.Time{}
			m.answeredAt, m.answeredBy = m.since, higherMAC
		}, actions{drop: true, reason: "higher has the Lease"}},
		{"not ready, and the API server is unavailable", func(m *stateMachine) { m.ready, m.leasedUntil, m.apiFailed = false, time.Time{}, true },
			actions{drop: true, reason: "the proxy is not ready, and another replica's may be"}},
		{"the same, and it has dropped the address before", func(m *stateMachine) {
			m.ready, m.leasedUntil, m.apiFailed, m.droppedUnready = false, time.Time{}, true, true
		}, actions{}},
		{"not ready, and the Lease is released", func(m *stateMachine) { m.ready, m.leasedUntil, m.lease.holder = false, time.Time{}, "" }, actions{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, now := holderMachine(true)
			m.announceUntil = time.Time{}
			tc.change(m)
			if got := m.decide(now); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestDecideStandby(t *testing.T) {
	const long = time.Minute
	away := func(m *stateMachine, now time.Time) { m.apiFailed = true; m.setWatching(now, false) }
	for _, tc := range []struct {
		name    string
		after   time.Duration // time since a peer answered
		change  func(m *stateMachine, now time.Time)
		request request
		claim   bool
	}{
		{"a peer answers", time.Second, nil, noRequest, false},
		{"no peer answers", 3 * time.Second, nil, acquire, false},
		{"no peer answers, because this process did not run and sent one probe", 3 * time.Second, func(m *stateMachine, _ time.Time) { m.probes = 1 }, noRequest, false},
		{"the API server is unavailable, and this process sent probes for a part of the delay", 6 * time.Second, func(m *stateMachine, now time.Time) { away(m, now); m.probes = 5 }, acquire, false},
		{"no frame is received", 3 * time.Second, func(m *stateMachine, now time.Time) { m.lastFrameAt = now.Add(-long) }, noRequest, false},
		{"no peer answers and the proxy is not ready", 3 * time.Second, func(m *stateMachine, _ time.Time) { m.setReady(start, false) }, noRequest, false},
		{"no peer answers and the interface has no carrier", 3 * time.Second, func(m *stateMachine, now time.Time) { m.setUp(now, false) }, noRequest, false},
		{"the interface has just got a carrier", long, func(m *stateMachine, now time.Time) { m.setUp(now, false); m.setUp(now, true) }, noRequest, false},
		{"the Lease is free and a peer answers", time.Second, func(m *stateMachine, _ time.Time) { m.lease.holder = "" }, acquire, false},
		{"the same, and the proxy has just become ready", time.Second, func(m *stateMachine, now time.Time) { m.lease.holder = ""; m.setReady(now, true) }, noRequest, false},
		{"the Lease has expired and a peer answers", time.Second, func(m *stateMachine, now time.Time) { m.leaseChangedAt = now.Add(-11 * time.Second) }, noRequest, false},
		{"the same, for two seconds", time.Second, func(m *stateMachine, now time.Time) { m.leaseChangedAt = now.Add(-12 * time.Second) }, acquire, false},
		{"the Lease seems expired after an outage of the API server", time.Second, func(m *stateMachine, now time.Time) {
			m.leaseChangedAt, m.watchingSince = now.Add(-long), now.Add(-time.Second)
		}, noRequest, false},
		{"the Lease is from a previous process", 3 * time.Second, func(m *stateMachine, _ time.Time) { m.lease.holder = "middle" }, acquire, false},
		{"the same, and a peer answers", time.Second, func(m *stateMachine, _ time.Time) { m.lease.holder = "middle" }, noRequest, false},
		{"the same, and the proxy is not ready", time.Second, func(m *stateMachine, _ time.Time) { m.lease.holder = "middle"; m.setReady(start, false) }, noRequest, false},
		{"the address was dropped while it had the Lease", time.Second, func(m *stateMachine, now time.Time) {
			m.lease.holder, m.leasedUntil = "middle", now.Add(time.Second)
		}, release, false},
		{"the API server is unavailable: acquire the Lease first", 3 * time.Second, away, acquire, false},
		{"the API server is unavailable: before the delay", 3500 * time.Millisecond, away, acquire, false},
		{"the API server is unavailable: after the delay", 4 * time.Second, away, acquire, true},
		{"the API server is unavailable, not ready: before the delay", 13 * time.Second, func(m *stateMachine, now time.Time) { away(m, now); m.setReady(start, false) }, noRequest, false},
		{"the API server is unavailable, not ready: after the delay", 15 * time.Second, func(m *stateMachine, now time.Time) { away(m, now); m.setReady(start, false) }, noRequest, true},
		{"the API server is unavailable, no frame is received", long, func(m *stateMachine, now time.Time) { away(m, now); m.lastFrameAt = now.Add(-long) }, noRequest, false},
		{"the API server is unavailable, the Lease was never read", long, func(m *stateMachine, now time.Time) { away(m, now); m.leaseKnown = false; m.lease.macs = nil }, register, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, now := standbyMachine(), start.Add(time.Hour)
			m.leaseChangedAt = now.Add(-time.Second)
			m.answeredAt, m.answeredBy, m.lastFrameAt = now.Add(-tc.after), lowerMAC, now.Add(-time.Second/2)
			for range tc.after / probeInterval {
				m.setProbed(time.Time{})
			}
			if tc.change != nil {
				tc.change(m, now)
			}
			do := m.decide(now)
			if do.claim != tc.claim || !tc.claim && do.request != tc.request {
				t.Errorf("%+v", do)
			}
		})
	}
}

// TestUnreadyHolderDropsTheAddressOnce drops the address of an unready holder while the API server is unavailable. No
// peer claims it, so the replica claims it again after its delay, and then keeps it.
func TestUnreadyHolderDropsTheAddressOnce(t *testing.T) {
	m, now := holderMachine(false)
	m.setReady(now, false)
	if do := m.decide(now); !do.drop {
		t.Fatalf("%+v", do)
	}
	for end := now.Add(patience + alone + unreadyDelay); now.Before(end); now = now.Add(100 * time.Millisecond) {
		m.handleFrame(now, parsedFrame{Sender: tenantMAC})
		m.setProbed(time.Time{})
		if do := m.decide(now); do.claim {
			t.Fatalf("it claimed the address %s too early", end.Sub(now))
		}
	}
	now = now.Add(2 * probeInterval) // the delay for one peer with a lower MAC address
	if do := m.decide(now); !do.claim {
		t.Error("it does not claim the address again")
	}
	if do := m.decide(now); do.drop {
		t.Error("it drops the address again")
	}
}

func TestOlderLeaseIsIgnored(t *testing.T) {
	m, now := holderMachine(true)
	old := m.lease
	old.version, old.holder = 1, "lower"
	m.setLease(now, time.Time{}, old)
	if !m.leased(now) || m.lease.holder != "middle" {
		t.Errorf("%+v", m.lease)
	}
}

// TestOutdatedGrantIsIgnored checks the reply to a request that arrives after the watch event of a later acquisition by
// a peer.
func TestOutdatedGrantIsIgnored(t *testing.T) {
	m := standbyMachine()
	now := start.Add(time.Minute)
	mine, theirs := m.lease, m.lease
	mine.holder, mine.version = "middle", 2
	theirs.holder, theirs.version = "higher", 3
	m.setLease(now, time.Time{}, theirs)
	do := m.handleResult(now, requestResult{request: acquire, started: now.Add(-time.Second), lease: mine, granted: true})
	if do.claim || m.holding || m.leased(now) {
		t.Errorf("%+v, has the Lease: %t", do, m.leased(now))
	}
}

func TestRestoredLeaseIsAccepted(t *testing.T) {
	m, now := holderMachine(true)
	restored := m.lease
	restored.version, restored.holder = 1, "lower"
	m.setLease(now.Add(time.Second), now.Add(time.Millisecond), restored)
	if m.lease.holder != "lower" || m.leased(now) {
		t.Errorf("%+v", m.lease)
	}
}

// TestHolderThatDidNotRun confirms the address after times in which the process did not run. Before a peer can have claimed
// the address, it is kept.
func TestHolderThatDidNotRun(t *testing.T) {
	for after, drop := range map[time.Duration]bool{time.Second: false, 5 * time.Second: false, 6 * time.Second: true} {
		m, now := holderMachine(true)
		if do := m.setConfirmed(now.Add(after)); do.drop != drop || m.holding == drop {
			t.Errorf("after %s: %+v", after, do)
		}
	}
}
