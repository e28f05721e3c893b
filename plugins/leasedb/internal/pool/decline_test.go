package pool_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

func TestDecline(t *testing.T) {
	b := ordinary(t)
	ctx, a := t.Context(), client("a")
	addr := b.dora(a)
	if why := b.Decline(ctx, client("b"), addr, true); why != pool.ReasonNotYours {
		t.Errorf("by somebody else: %s", why)
	}
	b.Decline(ctx, a, addr, true)
	b.granted.GaveUp(addr, a.Holder, b.clock.Now())
	second := b.dora(a)
	if second == addr {
		t.Error("it is offered what it declined")
	}
	b.open()
	for _, name := range names("other-", 8) {
		if got := b.dora(client(name)); got == addr {
			t.Errorf("%s got it after a restart", name)
		}
	}
	wantVerdict(t, b.Discover(client("late"), netip.Addr{}), pool.Silent, pool.ReasonExhausted)
	b.pass(10*time.Minute + 10*time.Second)
	if got := b.dora(client("late")); got != addr {
		t.Errorf("after the quarantine: %v", got)
	}
}

func TestDeclineIsHeededWithoutAStore(t *testing.T) {
	for name, ours := range map[string]bool{"ours, the store is away": true, "another replica's": false} {
		t.Run(name, func(t *testing.T) {
			b := machines(t)
			c := b.directory.boot("worker-0")
			addr := b.dora(c)
			b.store.away.Store(true)
			if why := b.Decline(t.Context(), c, addr, ours); why != pool.ReasonDone {
				t.Fatalf("got %s", why)
			}
			if a := b.Discover(c, netip.Addr{}); a.Verdict == pool.Grant {
				t.Errorf("it is offered %v again", a.Addr)
			}
			b.granted.GaveUp(addr, c.Holder, b.clock.Now())
			b.store.away.Store(false)
			if got := b.dora(c); got == addr {
				t.Errorf("it is given %v again", got)
			}
		})
	}
}

func TestFloodOfDeclines(t *testing.T) {
	t.Run("by one client", func(t *testing.T) {
		b := ordinary(t, withRange("192.0.2.10-192.0.2.109"))
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
	t.Run("by many", func(t *testing.T) {
		b := ordinary(t, withRange("192.0.2.10-192.0.2.109"))
		for _, name := range names("random-", 200) {
			offer := b.Discover(client(name), netip.Addr{})
			if a := b.note(client(name), b.Select(t.Context(), client(name), offer.Addr)); a.Verdict == pool.Grant {
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

// TestDeclineIsBelievedOnlyWithReason has a VM whose address somebody wants to be rid of: anyone on the network can send a
// DECLINE in its name.
func TestDeclineIsBelievedOnlyWithReason(t *testing.T) {
	type act func(b *bench, l *lan, c pool.Client, addr netip.Addr)
	wait := func(d time.Duration) act {
		return func(b *bench, _ *lan, _ pool.Client, _ netip.Addr) { b.pass(d) }
	}
	renew := act(func(b *bench, _ *lan, c pool.Client, addr netip.Addr) {
		wantVerdict(b.t, b.note(c, b.Renew(b.t.Context(), c, addr)), pool.Grant, "")
	})
	reboot := act(func(b *bench, _ *lan, c pool.Client, addr netip.Addr) {
		wantVerdict(b.t, b.verify(c, addr), pool.Grant, "")
	})
	startAgain := act(func(b *bench, _ *lan, c pool.Client, _ netip.Addr) { b.dora(c) })
	decline := act(func(b *bench, _ *lan, c pool.Client, addr netip.Addr) { b.Decline(b.t.Context(), c, addr, true) })
	restart := act(func(b *bench, l *lan, _ pool.Client, _ netip.Addr) { b.open(on(l, 0)) })
	usedBy := func(mac string) act {
		return func(_ *bench, l *lan, c pool.Client, addr netip.Addr) {
			if mac == "" {
				mac = c.MAC
			}
			l.users[addr] = mac
		}
	}
	blind := act(func(_ *bench, l *lan, _ pool.Client, _ netip.Addr) { l.away = true })
	stale := act(func(_ *bench, l *lan, _ pool.Client, _ netip.Addr) { l.stale = true })
	for name, tt := range map[string]struct {
		before []act
		want   pool.Reason
	}{
		"the client itself answered a moment ago":   {[]act{usedBy(""), stale}, pool.ReasonNotInUse},
		"the client answered before, a second time": {[]act{usedBy(""), stale, decline, startAgain}, pool.ReasonNotInUse},
		"somebody else answered before":             {[]act{usedBy(squatter), stale}, pool.ReasonNotInUse},
		"at once, somebody else answers":            {[]act{usedBy(squatter)}, pool.ReasonDone},
		"at once, the network cannot be looked at":  {[]act{blind}, pool.ReasonDone},
		"at once, nobody answers":                   {nil, pool.ReasonNotInUse},
		"a second time, nobody answers":             {[]act{decline, startAgain}, pool.ReasonDone},
		"the client itself answers":                 {[]act{usedBy("")}, pool.ReasonNotInUse},
		"the client itself answers, a second time":  {[]act{usedBy(""), decline, startAgain}, pool.ReasonNotInUse},
		"half an hour after the ACK":                {[]act{usedBy(squatter), wait(30 * time.Minute)}, pool.ReasonLate},
		"after a renewal":                           {[]act{usedBy(squatter), renew}, pool.ReasonLate},
		"twice after one ACK":                       {[]act{decline, usedBy(squatter)}, pool.ReasonLate},
		"after a restart of the server":             {[]act{restart, usedBy(squatter)}, pool.ReasonLate},
		"after a reboot, somebody else answers":     {[]act{wait(time.Hour), reboot, usedBy(squatter)}, pool.ReasonDone},
		"after a reboot, nobody answers":            {[]act{wait(time.Hour), reboot, decline, reboot}, pool.ReasonNotInUse},
		"after a reboot, and nobody can look":       {[]act{blind, wait(time.Hour), reboot}, pool.ReasonNotInUse},
		"after a new DORA, the client itself":       {[]act{usedBy(""), wait(time.Hour), startAgain}, pool.ReasonNotInUse},
		"of another replica's ACK, long ago":        {[]act{wait(time.Hour), restart, usedBy(squatter)}, pool.ReasonLate},
		"after a reboot behind a restart":           {[]act{restart, reboot, usedBy(squatter)}, pool.ReasonDone},
		"after a restart and a reboot, unconfirmed": {[]act{blind, restart, reboot}, pool.ReasonNotInUse},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lan{users: map[netip.Addr]string{}}
			b := machines(t, on(l, 0))
			c := b.directory.boot("worker-0")
			addr := b.dora(c)
			for _, f := range tt.before {
				f(b, l, c, addr)
			}
			if why := b.Decline(t.Context(), c, addr, true); why != tt.want {
				t.Errorf("it is answered with %q, want %q", why, tt.want)
			}
			if tt.want != pool.ReasonDone {
				wantVerdict(t, b.verify(c, addr), pool.Grant, "")
				return
			}
			b.granted.GaveUp(addr, c.Holder, b.clock.Now())
			if got := b.dora(c); got == addr {
				t.Error("it is given the same address again")
			}
		})
	}
}

// TestDeclineOfAnotherReplicasAddress has the REQUEST answered there: the binding is news of the store.
func TestDeclineOfAnotherReplicasAddress(t *testing.T) {
	b := machines(t)
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
		t.Error("it is granted all the same")
	}
}
