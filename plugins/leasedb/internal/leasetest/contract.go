package leasetest

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Contract runs the tests that every store.Store must pass. open must return a new, empty store, for IPv6 if
// ipv6 is true and otherwise for IPv4.
func Contract(t *testing.T, open func(t *testing.T, ipv6 bool) store.Store) {
	t.Run("compare and swap", func(t *testing.T) { testCompareAndSwap(t, open(t, false)) })
	t.Run("one of many concurrent writes succeeds", func(t *testing.T) { testConcurrentWrites(t, open(t, false)) })
	t.Run("all fields are stored", func(t *testing.T) { testRoundTrip(t, open) })
}

var used = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func testCompareAndSwap(t *testing.T, s store.Store) {
	ctx := t.Context()
	addr := netip.MustParseAddr("192.0.2.10")
	wantErr := func(step string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) || want == nil && got != nil {
			t.Fatalf("%s: got error %v, want %v", step, got, want)
		}
	}
	_, err := s.Get(ctx, addr)
	wantErr("reading without a binding", err, store.ErrNotFound)
	first, err := s.Put(ctx, store.Binding{Addr: addr, Holder: "demo/a/vlan", Used: used})
	wantErr("creating", err, nil)
	_, err = s.Put(ctx, store.Binding{Addr: addr, Holder: "demo/b/vlan", Used: used})
	wantErr("creating again", err, store.ErrConflict)
	next := first
	next.Released = true
	second, err := s.Put(ctx, next)
	wantErr("replacing", err, nil)
	if second.Revision <= first.Revision {
		t.Errorf("the revision is %d after %d", second.Revision, first.Revision)
	}
	outdated := first
	outdated.Holder = "demo/b/vlan"
	_, err = s.Put(ctx, outdated)
	wantErr("replacing an outdated binding", err, store.ErrConflict)
	wantErr("deleting an outdated binding", s.Delete(ctx, first), store.ErrConflict)
	got, err := s.Get(ctx, addr)
	wantErr("reading", err, nil)
	if diff := cmp.Diff(second, got, compareAddrs); diff != "" {
		t.Errorf("written and read bindings differ:\n%s", diff)
	}
	wantErr("deleting", s.Delete(ctx, second), nil)
	_, err = s.Get(ctx, addr)
	wantErr("reading a deleted binding", err, store.ErrNotFound)
	_, err = s.Put(ctx, second)
	wantErr("replacing a deleted binding", err, store.ErrConflict)
	again, err := s.Put(ctx, store.Binding{Addr: addr, Holder: "demo/b/vlan", Used: used})
	wantErr("creating a deleted binding", err, nil)
	_, err = s.Put(ctx, second)
	wantErr("replacing a binding that was deleted and created", err, store.ErrConflict)
	if again.Revision <= second.Revision {
		t.Errorf("the revision is %d after %d", again.Revision, second.Revision)
	}
}

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func testConcurrentWrites(t *testing.T, s store.Store) {
	addr := netip.MustParseAddr("192.0.2.11")
	var won atomic.Int64
	var group sync.WaitGroup
	for i := range 64 {
		group.Go(func() {
			_, err := s.Put(t.Context(), store.Binding{Addr: addr, Holder: fmt.Sprintf("demo/worker-%d/vlan", i), Used: used})
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, store.ErrConflict) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		t.Errorf("%d writes succeeded, want 1", won.Load())
	}
}

func testRoundTrip(t *testing.T, open func(t *testing.T, ipv6 bool) store.Store) {
	bindings := map[string]store.Binding{
		"VM":           {Holder: "demo/worker-0/vlan", MAC: "02:00:00:00:00:01", Hostname: "worker-0", Used: used},
		"released":     {Holder: "demo/worker-0/vlan", Released: true, Used: used},
		"ordinary":     {Holder: "id:01020000000001", MAC: "02:00:00:00:00:01", Used: used, Expires: used.Add(time.Hour)},
		"declined":     {Holder: store.Declined, Used: used, Expires: used.Add(time.Minute)},
		"long name":    {Holder: "demo/" + long + "/vlan", Hostname: long, Used: used},
		"unusual text": {Holder: "id:00", MAC: "00:11:22:33:44:55:66:77", Hostname: "-._", Used: used},
	}
	for family, addr := range map[string]netip.Addr{"ipv4": netip.MustParseAddr("192.0.2.9"), "ipv6": netip.MustParseAddr("2001:db8::1:0:9")} {
		s := open(t, addr.Is6())
		for name, b := range bindings {
			t.Run(family+" "+name, func(t *testing.T) {
				b.Addr = addr
				written, err := s.Put(t.Context(), b)
				if err != nil {
					t.Fatal(err)
				}
				got, err := s.Get(t.Context(), addr)
				if err != nil {
					t.Fatal(err)
				}
				b.UID, b.Revision = written.UID, written.Revision
				for what, other := range map[string]store.Binding{"written": written, "read": got} {
					if diff := cmp.Diff(b, other, compareAddrs); diff != "" {
						t.Errorf("%s differs:\n%s", what, diff)
					}
				}
				if err := s.Delete(t.Context(), got); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

const long = "a-virtual-machine-whose-name-is-valid-for-the-api-server-but-longer-than-the-value-of-a-label-is-allowed-to-be"

// A Sink is a store.Sink that keeps the bindings.
type Sink struct {
	mu       sync.Mutex
	bindings map[netip.Addr]store.Binding
}

// Replace implements store.Sink.
func (s *Sink) Replace(all []store.Binding, _ uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bindings = map[netip.Addr]store.Binding{}
	for _, b := range all {
		s.bindings[b.Addr] = b
	}
}

// Set implements store.Sink.
func (s *Sink) Set(b store.Binding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bindings[b.Addr] = b
}

// Remove implements store.Sink.
func (s *Sink) Remove(addr netip.Addr, _ uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.bindings, addr)
}

// Holder returns the holder of an address, or "".
func (s *Sink) Holder(addr netip.Addr) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bindings[addr].Holder
}

// Len returns the number of bindings, or -1 before the first list.
func (s *Sink) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bindings == nil {
		return -1
	}
	return len(s.bindings)
}
