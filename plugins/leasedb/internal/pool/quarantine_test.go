package pool_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// recheck probes the addresses in quarantine every two seconds, as Run does.
func (b *harness) recheck(d time.Duration) {
	for end := b.clock.Now().Add(d); b.clock.Now().Before(end); {
		b.clock.Step(2 * time.Second)
		b.RecheckQuarantined(b.t.Context())
	}
}

// TestQuarantineEndsWhenTheHostIsGone covers an address that a client declined, and one that a probe found in use.
func TestQuarantineEndsWhenTheHostIsGone(t *testing.T) {
	declined := netip.MustParseAddr("192.0.2.10")
	l := &lan{users: map[netip.Addr]string{}}
	b := newOrdinaryHarness(t, withRange("192.0.2.10-192.0.2.29"), withLAN(l, 20))
	c := client("worker")
	addr := b.dora(c)
	if addr != declined {
		declined = addr
	}
	l.users[declined] = otherMAC
	if why := b.Decline(t.Context(), c, declined, true); why != pool.ReasonDone {
		t.Fatalf("DECLINE: %s", why)
	}
	b.granted.GaveUp(declined, c.Holder, b.clock.Now())
	found := declined.Next()
	l.users[found] = otherMAC
	b.ProbeFree(t.Context())
	b.recheck(2 * time.Minute)
	list := b.Quarantined()
	if len(list) != 2 || list[0].Addr != declined || list[0].MAC != otherMAC || !list[0].Declined || list[1].Addr != found || list[1].MAC != otherMAC || list[1].Declined {
		t.Fatalf("in quarantine: %+v", list)
	}
	if n := len(l.probed); n > 20+1+2*13 {
		t.Errorf("%d probes of two addresses within two minutes", n-21)
	}

	delete(l.users, declined)
	delete(l.users, found)
	b.recheck(20 * time.Second)
	if list := b.Quarantined(); len(list) != 2 {
		t.Errorf("after 20 seconds: %+v", list)
	}
	b.recheck(22 * time.Second)
	if list := b.Quarantined(); len(list) != 0 || b.Stats().Quarantined != 0 {
		t.Errorf("after 42 seconds: %+v, %+v", list, b.Stats())
	}
	wantVerdict(t, b.Discover(client("other"), declined), pool.Grant, "")
	b.open(withRange("192.0.2.10-192.0.2.29"), withLAN(l, 20)) // the stored quarantine was deleted
	if list := b.Quarantined(); len(list) != 0 {
		t.Errorf("after a restart: %+v", list)
	}
}

// TestQuarantineWithoutAnAnswerLasts covers a host that the client sees, and probes do not.
func TestQuarantineWithoutAnAnswerLasts(t *testing.T) {
	l := &lan{unreachable: true}
	b := newOrdinaryHarness(t, withLAN(l, 0))
	c := client("worker")
	addr := b.dora(c)
	if why := b.Decline(t.Context(), c, addr, true); why != pool.ReasonDone {
		t.Fatalf("DECLINE: %s", why)
	}
	b.granted.GaveUp(addr, c.Holder, b.clock.Now())
	l.unreachable = false
	b.recheck(9 * time.Minute)
	if list := b.Quarantined(); len(list) != 1 || list[0].MAC != "" || !list[0].Declined {
		t.Errorf("in quarantine: %+v", list)
	}
}

// TestEndedTestIsNoLostBinding deletes the binding of a client of 'kubectl oooi test', as the test does when it ends.
func TestEndedTestIsNoLostBinding(t *testing.T) {
	b := newVMHarness(t)
	addr := b.dora(b.directory.boot(testclient.VM("demo-test-x")))
	if err := b.store.Delete(t.Context(), b.Bindings()[0]); err != nil {
		t.Fatal(err)
	}
	b.Remove(addr, 1<<62)
	if list := b.Lost(); len(list) != 0 {
		t.Errorf("lost: %+v", list)
	}
}

// TestLostBindingOfAVM covers a stored binding that another client deletes.
func TestLostBindingOfAVM(t *testing.T) {
	b := newVMHarness(t)
	c := b.directory.boot("worker-0")
	addr := b.dora(c)
	lose := func() { // as another client of the API server
		t.Helper()
		if err := b.store.Delete(t.Context(), b.Bindings()[0]); err != nil {
			t.Fatal(err)
		}
		b.Remove(addr, 1<<62)
	}
	lose()
	list := b.Lost()
	if len(list) != 1 || list[0].Addr != addr || list[0].Holder != c.Holder || list[0].Renewal.Sub(list[0].At) != time.Hour/2 {
		t.Fatalf("lost: %+v", list)
	}
	if n := b.Stats().Quarantined; n != 0 {
		t.Errorf("%d addresses are in quarantine", n)
	}
	other := b.directory.boot("worker-1")
	other.MAC = "02:00:00:00:00:99"
	wantVerdict(t, b.verify(other, addr), pool.Refuse, pool.ReasonTaken)
	wantVerdict(t, b.Renew(t.Context(), c, addr), pool.Grant, "")
	if list := b.Lost(); len(list) != 0 {
		t.Errorf("after a renewal: %+v", list)
	}
	lose()
	if again := b.dora(c); again != addr { // after a boot without a memory of the address
		t.Errorf("a new DISCOVER leads to %s, want %s", again, addr)
	}
	lose()
	b.directory.remove("worker-0", true)
	b.advance(time.Minute)
	if list := b.Lost(); len(list) != 0 {
		t.Errorf("after the deletion of the VM: %+v", list)
	}
	b.granted.GaveUp(addr, c.Holder, b.clock.Now())
	wantVerdict(t, b.verify(other, addr), pool.Grant, "")
}

// TestEditedBindingOfAVM covers a stored binding to which another client gives another holder.
func TestEditedBindingOfAVM(t *testing.T) {
	b := newVMHarness(t)
	c := b.directory.boot("worker-0")
	addr := b.dora(c)
	edit := func(holder string) { // as another client of the API server
		t.Helper()
		edited := b.Bindings()[0]
		edited.Holder = holder
		edited, err := b.store.Put(t.Context(), edited)
		if err != nil {
			t.Fatal(err)
		}
		b.Set(edited)
	}
	edit("clusters-demo/ghost/vlan")
	if list := b.Lost(); len(list) != 1 || list[0].Addr != addr || list[0].Holder != c.Holder || list[0].NewHolder != "clusters-demo/ghost/vlan" {
		t.Fatalf("lost: %+v", list)
	}
	edit(c.Holder)
	if list := b.Lost(); len(list) != 0 {
		t.Errorf("after the holder was restored: %+v", list)
	}
	if why := b.Decline(t.Context(), c, addr, true); why != pool.ReasonDone || len(b.Lost()) != 0 {
		t.Errorf("after a DECLINE (%s): %+v", why, b.Lost())
	}
	b.granted.GaveUp(addr, c.Holder, b.clock.Now())
}
