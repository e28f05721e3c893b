package pool_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

func TestDecline(t *testing.T) {
	b := newOrdinaryHarness(t)
	ctx, a := t.Context(), client("a")
	addr := b.dora(a)
	if why := b.Decline(ctx, client("b"), addr, true); why != pool.ReasonNotYours {
		t.Errorf("by another client: %s", why)
	}
	b.Decline(ctx, a, addr, true)
	b.granted.GaveUp(addr, a.Holder, b.clock.Now())
	second := b.dora(a)
	if second == addr {
		t.Error("the client is offered the declined address")
	}
	b.open()
	for _, name := range names("other-", 8) {
		if got := b.dora(client(name)); got == addr {
			t.Errorf("%s got the declined address after a restart", name)
		}
	}
	wantVerdict(t, b.Discover(client("late"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	b.advance(10*time.Minute + 10*time.Second)
	if got := b.dora(client("late")); got != addr {
		t.Errorf("after the quarantine: %v", got)
	}
}

func TestDeclineWithoutAWrite(t *testing.T) {
	for name, ours := range map[string]bool{"the store is unavailable": true, "the client selected another server": false} {
		t.Run(name, func(t *testing.T) {
			b := newVMHarness(t)
			c := b.directory.boot("worker-0")
			addr := b.dora(c)
			b.store.unavailable.Store(true)
			if why := b.Decline(t.Context(), c, addr, ours); why != pool.ReasonDone {
				t.Fatalf("got %s", why)
			}
			if a := b.Discover(c, netip.Addr{}); a.Verdict == pool.Grant {
				t.Errorf("the client is offered the declined address %v", a.Addr)
			}
			b.granted.GaveUp(addr, c.Holder, b.clock.Now())
			b.store.unavailable.Store(false)
			if got := b.dora(c); got == addr {
				t.Errorf("the client gets the declined address %v", got)
			}
		})
	}
}

func TestFloodOfDeclines(t *testing.T) {
	t.Run("by one client", func(t *testing.T) {
		b := newOrdinaryHarness(t, withRange("192.0.2.10-192.0.2.109"))
		var last pool.Reason
		for range 10 {
			addr := b.dora(client("a"))
			last = b.Decline(t.Context(), client("a"), addr, true)
			b.granted.GaveUp(addr, client("a").Holder, b.clock.Now())
		}
		if s := b.Stats(); s.Quarantined != 3 || last != pool.ReasonTooMany {
			t.Errorf("got %s and %+v", last, s)
		}
	})
	t.Run("by many clients", func(t *testing.T) {
		b := newOrdinaryHarness(t, withRange("192.0.2.10-192.0.2.109"))
		for _, name := range names("random-", 200) {
			offer := b.Discover(client(name), netip.Addr{})
			if a := b.recordGrant(client(name), b.Select(t.Context(), client(name), offer.Addr)); a.Verdict == pool.Grant {
				b.Decline(t.Context(), client(name), a.Addr, true)
				b.Release(t.Context(), client(name), a.Addr)
				b.granted.GaveUp(a.Addr, client(name).Holder, b.clock.Now())
			}
		}
		if s := b.Stats(); s.Quarantined > 26 || s.Free == 0 {
			t.Errorf("got %+v", s)
		}
	})
}

// TestAcceptedDeclines covers DECLINEs of a VM, which any host on the network can forge.
func TestAcceptedDeclines(t *testing.T) {
	type act func(b *harness, l *lan, c pool.Client, addr netip.Addr)
	wait := func(d time.Duration) act {
		return func(b *harness, _ *lan, _ pool.Client, _ netip.Addr) { b.advance(d) }
	}
	renew := act(func(b *harness, _ *lan, c pool.Client, addr netip.Addr) {
		wantVerdict(b.t, b.recordGrant(c, b.Renew(b.t.Context(), c, addr)), pool.Grant, "")
	})
	reboot := act(func(b *harness, _ *lan, c pool.Client, addr netip.Addr) {
		wantVerdict(b.t, b.verify(c, addr), pool.Grant, "")
	})
	startAgain := act(func(b *harness, _ *lan, c pool.Client, _ netip.Addr) { b.dora(c) })
	decline := act(func(b *harness, _ *lan, c pool.Client, addr netip.Addr) { b.Decline(b.t.Context(), c, addr, true) })
	restart := act(func(b *harness, l *lan, _ pool.Client, _ netip.Addr) { b.open(withLAN(l, 0)) })
	usedBy := func(mac string) act {
		return func(_ *harness, l *lan, c pool.Client, addr netip.Addr) {
			if mac == "" {
				mac = c.MAC
			}
			l.users[addr] = mac
		}
	}
	unreachable := act(func(_ *harness, l *lan, _ pool.Client, _ netip.Addr) { l.unreachable = true })
	staleEntry := act(func(_ *harness, l *lan, _ pool.Client, _ netip.Addr) { l.stale = true })
	for name, tt := range map[string]struct {
		before []act
		want   pool.Reason
	}{
		"stale entry of the client":                 {[]act{usedBy(""), staleEntry}, pool.ReasonNotInUse},
		"stale entry of the client, second DECLINE": {[]act{usedBy(""), staleEntry, decline, startAgain}, pool.ReasonNotInUse},
		"stale entry of another host":               {[]act{usedBy(otherMAC), staleEntry}, pool.ReasonNotInUse},
		"at once, another host answers":             {[]act{usedBy(otherMAC)}, pool.ReasonDone},
		"at once, no probe possible":                {[]act{unreachable}, pool.ReasonDone},
		"at once, no answer":                        {nil, pool.ReasonNotInUse},
		"second DECLINE, no answer":                 {[]act{decline, startAgain}, pool.ReasonDone},
		"the client answers":                        {[]act{usedBy("")}, pool.ReasonNotInUse},
		"the client answers, second DECLINE":        {[]act{usedBy(""), decline, startAgain}, pool.ReasonNotInUse},
		"half an hour after the ACK":                {[]act{usedBy(otherMAC), wait(30 * time.Minute)}, pool.ReasonLate},
		"after a renewal":                           {[]act{usedBy(otherMAC), renew}, pool.ReasonLate},
		"second DECLINE after one ACK":              {[]act{decline, usedBy(otherMAC)}, pool.ReasonLate},
		"after a restart of the server":             {[]act{restart, usedBy(otherMAC)}, pool.ReasonLate},
		"after a reboot, another host answers":      {[]act{wait(time.Hour), reboot, usedBy(otherMAC)}, pool.ReasonDone},
		"after a reboot, no answer":                 {[]act{wait(time.Hour), reboot, decline, reboot}, pool.ReasonNotInUse},
		"after a reboot, no probe possible":         {[]act{unreachable, wait(time.Hour), reboot}, pool.ReasonNotInUse},
		"after a new DORA, the client answers":      {[]act{usedBy(""), wait(time.Hour), startAgain}, pool.ReasonNotInUse},
		"long after an ACK of another replica":      {[]act{wait(time.Hour), restart, usedBy(otherMAC)}, pool.ReasonLate},
		"after a restart and a reboot":              {[]act{restart, reboot, usedBy(otherMAC)}, pool.ReasonDone},
		"the same, no probe possible":               {[]act{unreachable, restart, reboot}, pool.ReasonNotInUse},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lan{users: map[netip.Addr]string{}}
			b := newVMHarness(t, withLAN(l, 0))
			c := b.directory.boot("worker-0")
			addr := b.dora(c)
			for _, f := range tt.before {
				f(b, l, c, addr)
			}
			if why := b.Decline(t.Context(), c, addr, true); why != tt.want {
				t.Errorf("the reason is %q, want %q", why, tt.want)
			}
			if tt.want != pool.ReasonDone {
				wantVerdict(t, b.verify(c, addr), pool.Grant, "")
				return
			}
			b.granted.GaveUp(addr, c.Holder, b.clock.Now())
			if got := b.dora(c); got == addr {
				t.Error("the client gets the declined address")
			}
		})
	}
}

// TestDeclineOfAnotherReplicasAddress declines an address that another replica has acknowledged: this replica knows
// the binding from the store.
func TestDeclineOfAnotherReplicasAddress(t *testing.T) {
	b := newVMHarness(t)
	other := b.replica()
	c := b.directory.boot("worker-0")
	addr := b.dora(c)
	for _, binding := range b.Bindings() {
		other.Set(binding)
	}
	if why := other.Decline(t.Context(), c, addr, false); why != pool.ReasonDone {
		t.Errorf("at once: %s", why)
	}
	if a := other.Verify(t.Context(), c, addr); a.Verdict == pool.Grant {
		t.Error("the declined address is granted")
	}
}
