package vip

import (
	"net/netip"
	"testing"
	"time"
)

var testTiming = Timing{
	LeaseDuration: 10 * time.Second, RenewInterval: 3 * time.Second, ProbeInterval: 500 * time.Millisecond,
	Patience: 2 * time.Second, Alone: 3 * time.Second, Lifetime: 4 * time.Second, Linger: 3 * time.Second,
}

var (
	start      = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	lowerMAC   = mac{2, 0, 0, 0, 0, 0x01}
	higherMAC  = mac{2, 0, 0, 0, 0, 0xf1}
	tenantMAC  = mac{2, 0, 0, 0, 9, 9}
	testLeased = heard{By: higherMAC, Address: test4, Leased: true}
)

// middling is an instance with a peer of a lower MAC address and one of a higher, which has
// looked at the network for a minute.
func middling() *machine {
	m := &machine{Timing: testTiming, identity: "middle", self: testMAC, addresses: []netip.Addr{test4, test6}, conflicts: map[string]int{}}
	m.setUp(start, true)
	m.setReady(start, true)
	m.follow(start, true)
	m.see(start, time.Time{}, record{holder: "lower", renewed: "1", version: 1, macs: map[string]mac{"lower": lowerMAC, "middle": testMAC, "higher": higherMAC}})
	return m
}

// holding has it hold the address, with the Lease or without.
func holding(leased bool) (*machine, time.Time) {
	m, now := middling(), start.Add(time.Minute)
	m.claim(now, "test")
	r := m.lease
	r.version, r.holder = 2, "middle"
	m.see(now, time.Time{}, r)
	m.failed = !leased
	if leased {
		m.leasedUntil = now.Add(testTiming.LeaseDuration)
	}
	return m, now
}

func TestWhoYieldsToWhom(t *testing.T) {
	for _, tc := range []struct {
		name          string
		leased        bool
		hears         heard
		drop, counted bool
	}{
		{"with the Lease, to a lower address", true, heard{By: lowerMAC, Address: test4}, false, true},
		{"with the Lease, to one that says that it has it", true, testLeased, false, true},
		{"with the Lease, to a tenant", true, heard{By: tenantMAC, Address: test4, Leased: true}, false, true},
		{"without, to a lower address", false, heard{By: lowerMAC, Address: test4}, true, true},
		{"without, by IPv6", false, heard{By: lowerMAC, Address: test6}, true, true},
		{"without, to a higher address", false, heard{By: higherMAC, Address: test4}, false, true},
		{"without, to a higher address with the Lease", false, testLeased, true, true},
		{"without, to a tenant", false, heard{By: tenantMAC, Address: test4, Leased: true}, false, true},
		{"without, to itself", false, heard{By: testMAC, Address: test4}, false, false},
		{"without, to a claim of something else", false, heard{By: lowerMAC, Address: netip.MustParseAddr("192.0.2.5")}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, now := holding(tc.leased)
			do := m.hear(now, tc.hears)
			if do.drop != tc.drop || m.holding == tc.drop {
				t.Errorf("%+v", do)
			}
			if do.announce != (tc.counted && !tc.drop) {
				t.Errorf("it defends the address: %t", do.announce)
			}
			if counted := m.conflicts["peer"]+m.conflicts["stranger"] > 0; counted != tc.counted {
				t.Errorf("counted: %t", counted)
			}
		})
	}
}

// TestATenantGetsFewAnnouncements sends claims as fast as it goes for ten seconds.
func TestATenantGetsFewAnnouncements(t *testing.T) {
	m, now := holding(true)
	announced := 0
	for end := now.Add(10 * time.Second); now.Before(end); now = now.Add(time.Millisecond) {
		if m.hear(now, heard{By: tenantMAC, Address: test4}).announce {
			announced++
		}
	}
	if announced != 10 {
		t.Errorf("%d announcements in ten seconds", announced)
	}
	if !m.hear(now, heard{By: higherMAC, Address: test4}).announce {
		t.Error("a peer gets none then")
	}
}

func TestWhatAHolderAsks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*machine)
		want   todo
	}{
		{"the Lease is fresh", func(m *machine) { m.renewAt = m.since.Add(time.Hour) }, todo{}},
		{"it is not", func(*machine) {}, todo{ask: renew}},
		{"not ready", func(m *machine) { m.ready = false }, todo{ask: release}},
		{"not ready and alone", func(m *machine) { m.ready = false; m.lease.macs = map[string]mac{"middle": testMAC} }, todo{ask: renew}},
		{"ending", func(m *machine) { m.ending = true }, todo{ask: release}},
		{"no carrier", func(m *machine) { m.up = false }, todo{drop: true, why: "the interface has no carrier"}},
		{"the Lease was not renewed in time", func(m *machine) { m.leasedUntil = time.Time{} }, todo{ask: take}},
		{"a peer has the Lease and is not heard", func(m *machine) { m.lease.holder = "lower"; m.leasedUntil = time.Time{} }, todo{}},
		{"a peer has the Lease and answers", func(m *machine) {
			m.lease.holder, m.leasedUntil = "higher", time.Time{}
			m.answered, m.answeredBy = m.since, higherMAC
		}, todo{drop: true, why: "higher has the Lease"}},
		{"not ready, and the API server is away", func(m *machine) { m.ready, m.leasedUntil, m.failed = false, time.Time{}, true },
			todo{drop: true, why: "the proxy is not ready, and another replica's may be"}},
		{"and it had offered the address before", func(m *machine) { m.ready, m.leasedUntil, m.failed, m.offered = false, time.Time{}, true, true }, todo{}},
		{"not ready, and the Lease is offered", func(m *machine) { m.ready, m.leasedUntil, m.lease.holder = false, time.Time{}, "" }, todo{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, now := holding(true)
			m.announceTill = time.Time{}
			tc.change(m)
			if got := m.decide(now); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestWhenAStandbyTakesOver(t *testing.T) {
	const quiet = time.Minute
	away := func(m *machine, now time.Time) { m.failed = true; m.follow(now, false) }
	for _, tc := range []struct {
		name   string
		after  time.Duration // since a peer answered
		change func(m *machine, now time.Time)
		ask    request
		claim  bool
	}{
		{"somebody answers", time.Second, nil, nothing, false},
		{"nobody answers", 3 * time.Second, nil, take, false},
		{"nobody is heard at all", 3 * time.Second, func(m *machine, now time.Time) { m.anybody = now.Add(-quiet) }, nothing, false},
		{"nobody answers and we are not ready", 3 * time.Second, func(m *machine, _ time.Time) { m.setReady(start, false) }, nothing, false},
		{"nobody answers and we have no carrier", 3 * time.Second, func(m *machine, now time.Time) { m.setUp(now, false) }, nothing, false},
		{"we have just got a carrier", quiet, func(m *machine, now time.Time) { m.setUp(now, false); m.setUp(now, true) }, nothing, false},
		{"the Lease is free and somebody answers", time.Second, func(m *machine, _ time.Time) { m.lease.holder = "" }, take, false},
		{"the same, and we were not ready until now", time.Second, func(m *machine, now time.Time) { m.lease.holder = ""; m.setReady(now, true) }, nothing, false},
		{"the Lease has expired and somebody answers", time.Second, func(m *machine, now time.Time) { m.changed = now.Add(-11 * time.Second) }, take, false},
		{"it seems so to one that was without an API server", time.Second, func(m *machine, now time.Time) {
			m.changed, m.following = now.Add(-quiet), now.Add(-time.Second)
		}, nothing, false},
		{"the Lease is ours from before", 3 * time.Second, func(m *machine, _ time.Time) { m.lease.holder = "middle" }, take, false},
		{"the same, and a peer answers", time.Second, func(m *machine, _ time.Time) { m.lease.holder = "middle" }, nothing, false},
		{"the same, and we are not ready", time.Second, func(m *machine, _ time.Time) { m.lease.holder = "middle"; m.setReady(start, false) }, nothing, false},
		{"the Lease is ours and we had to drop the address", time.Second, func(m *machine, now time.Time) {
			m.lease.holder, m.leasedUntil = "middle", now.Add(time.Second)
		}, release, false},
		{"the API server is away: it is asked first", 3 * time.Second, away, take, false},
		{"others go first", 5500 * time.Millisecond, away, take, false},
		{"then it is our turn", 6 * time.Second, away, take, true},
		{"who is not ready waits longer", 15 * time.Second, func(m *machine, now time.Time) { away(m, now); m.setReady(start, false) }, nothing, false},
		{"and claims it if nobody does", 17 * time.Second, func(m *machine, now time.Time) { away(m, now); m.setReady(start, false) }, nothing, true},
		{"not who hears nobody", quiet, func(m *machine, now time.Time) { away(m, now); m.anybody = now.Add(-quiet) }, nothing, false},
		{"not who knows nobody", quiet, func(m *machine, now time.Time) { away(m, now); m.known = false; m.lease.macs = nil }, register, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, now := middling(), start.Add(time.Hour)
			m.changed = now.Add(-time.Second)
			m.answered, m.answeredBy, m.anybody = now.Add(-tc.after), lowerMAC, now.Add(-time.Second/2)
			if tc.change != nil {
				tc.change(m, now)
			}
			do := m.decide(now)
			if do.claim != tc.claim || !tc.claim && do.ask != tc.ask {
				t.Errorf("%+v", do)
			}
		})
	}
}

// TestWhoOffersTheAddressLeavesItToOthers has nobody else take it.
func TestWhoOffersTheAddressLeavesItToOthers(t *testing.T) {
	m, now := holding(false)
	m.setReady(now, false)
	if do := m.decide(now); !do.drop {
		t.Fatalf("%+v", do)
	}
	for end := now.Add(testTiming.Patience + testTiming.Alone + unreadyDelay); now.Before(end); now = now.Add(100 * time.Millisecond) {
		m.hear(now, heard{By: tenantMAC})
		if do := m.decide(now); do.claim {
			t.Fatalf("%s too soon", end.Sub(now))
		}
	}
	now = now.Add(2 * testTiming.ProbeInterval) // those with a lower address go first
	if do := m.decide(now); !do.claim {
		t.Error("it does not claim it again")
	}
	if do := m.decide(now); do.drop {
		t.Error("it offers it again")
	}
}

func TestLateNewsAreNone(t *testing.T) {
	m, now := holding(true)
	old := m.lease
	old.version, old.holder = 1, "lower"
	m.see(now, time.Time{}, old)
	if !m.leased(now) || m.lease.holder != "middle" {
		t.Errorf("%+v", m.lease)
	}
}

// TestAGrantThatIsOverIsNone: the news that a peer took the Lease later can arrive before the reply.
func TestAGrantThatIsOverIsNone(t *testing.T) {
	m := middling()
	now := start.Add(time.Minute)
	mine, theirs := m.lease, m.lease
	mine.holder, mine.version = "middle", 2
	theirs.holder, theirs.version = "higher", 3
	m.see(now, time.Time{}, theirs)
	do := m.done(now, outcome{request: take, started: now.Add(-time.Second), lease: mine, granted: true})
	if do.claim || m.holding || m.leased(now) {
		t.Errorf("%+v, the Lease is ours: %t", do, m.leased(now))
	}
}

func TestARestoredLeaseIsNews(t *testing.T) {
	m, now := holding(true)
	restored := m.lease
	restored.version, restored.holder = 1, "lower"
	m.see(now.Add(time.Second), now.Add(time.Millisecond), restored)
	if m.lease.holder != "lower" || m.leased(now) {
		t.Errorf("%+v", m.lease)
	}
}
