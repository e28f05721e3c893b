package pool_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/boltstore"
	"github.com/densityops/oooi/plugins/leasedb/internal/leasetest"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
	"github.com/densityops/oooi/test/lab"
)

// faultyStore is a store that can be unavailable, like an API server, and counts writes.
type faultyStore struct {
	store.Store

	unavailable atomic.Bool
	failing     atomic.Bool // writes fail although Synced is true
	writes      atomic.Int64
	// duringWrite, if set, is called during each write.
	duringWrite func()
}

var errUnavailable = errors.New("the store is unavailable")

func (s *faultyStore) Synced() bool { return !s.unavailable.Load() }

func (s *faultyStore) Put(ctx context.Context, b store.Binding) (store.Binding, error) {
	if s.unavailable.Load() || s.failing.Load() {
		return store.Binding{}, errUnavailable
	}
	if s.duringWrite != nil {
		s.duringWrite()
	}
	s.writes.Add(1)
	return s.Store.Put(ctx, b)
}

func (s *faultyStore) Delete(ctx context.Context, b store.Binding) error {
	if s.unavailable.Load() {
		return errUnavailable
	}
	return s.Store.Delete(ctx, b)
}

// A directory contains the VMs of a test.
type directory struct {
	mu           sync.Mutex
	vms          map[vm.Interface]bool
	reserved     map[netip.Addr]vm.Interface
	reservations []vm.Client
	refused      map[vm.Interface]string
	unsynced     bool
	deleted      []func(vm.Interface)
}

// Lookup knows MAC addresses of the form 02:00:00:00:01:xx. The pool does not use which VM they belong to.
func (d *directory) Lookup(mac net.HardwareAddr) (vm.Client, bool) {
	return vm.Client{}, len(mac) == 6 && mac[4] == 1
}

func (d *directory) Clients() []vm.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []vm.Client
	for i := range d.vms {
		list = append(list, vm.Client{Interface: i})
	}
	return list
}

func (d *directory) ReservedFor(addr netip.Addr) (vm.Interface, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, ok := d.reserved[addr]
	return i, ok
}

// reserve adds a VM and reserves an address for it.
func (d *directory) reserve(name string, addr netip.Addr) pool.Client {
	c := d.boot(name)
	c.Reserved = addr
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reserved == nil {
		d.reserved = map[netip.Addr]vm.Interface{}
	}
	d.reservations = append(d.reservations, vm.Client{Interface: nicOf(name), Reserved: []netip.Addr{addr}})
	if _, taken := d.reserved[addr]; !taken {
		d.reserved[addr] = nicOf(name)
	}
	return c
}

func (d *directory) Reservations() []vm.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reservations
}

func (d *directory) ReportRefused(all map[vm.Interface]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = all
}

func (d *directory) Exists(i vm.Interface) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.vms[i]
}

func (d *directory) Synced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.unsynced
}

func (d *directory) Subscribe(f func(vm.Interface)) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleted = append(d.deleted, f)
	return func() {}
}

func (d *directory) setSynced(synced bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsynced = !synced
}

func nicOf(name string) vm.Interface { return vm.Interface{Namespace: "demo", VM: name, Name: "vlan"} }

// boot adds a VM.
func (d *directory) boot(name string) pool.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vms[nicOf(name)] = true
	return pool.Client{Holder: nicOf(name).String(), VM: true, MAC: "02:00:00:00:00:01", Hostname: name}
}

// remove deletes a VM. observed is set if the directory observes the deletion.
func (d *directory) remove(name string, observed bool) {
	d.mu.Lock()
	delete(d.vms, nicOf(name))
	subscribers := d.deleted
	d.mu.Unlock()
	for _, f := range subscribers {
		if observed {
			f(nicOf(name))
		}
	}
}

// A harness is a pool with its store, clock and directory.
type harness struct {
	*pool.Pool

	t         *testing.T
	path      string
	clock     *clocktesting.FakeClock
	store     *faultyStore
	bolt      *boltstore.Store
	directory *directory
	granted   *leasetest.Log
	log       *bytes.Buffer
	stop      func()
}

type option func(*pool.Config)

func withRange(text string) option {
	return func(c *pool.Config) { c.Ranges = ranges(text) }
}

func ranges(text string) pool.Ranges {
	r, err := v1alpha1.ParseAddressRange(text)
	if err != nil {
		panic(err)
	}
	all, err := pool.NewRanges([]v1alpha1.AddressRange{r}, nil)
	if err != nil {
		panic(err)
	}
	return all
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newVMHarness returns a pool with a directory of VMs, newOrdinaryHarness one without a directory.
func newVMHarness(t *testing.T, options ...option) *harness {
	t.Helper()
	return newBench(t, &directory{vms: map[vm.Interface]bool{}}, options)
}

func newOrdinaryHarness(t *testing.T, options ...option) *harness {
	t.Helper()
	return newBench(t, nil, options)
}

func newBench(t *testing.T, d *directory, options []option) *harness {
	t.Helper()
	b := &harness{
		t: t, path: filepath.Join(t.TempDir(), "leases.db"), clock: clocktesting.NewFakeClock(start), directory: d,
		granted: &leasetest.Log{}, log: &bytes.Buffer{}, stop: func() {},
	}
	t.Cleanup(func() {
		b.stop()
		lab.Report(t, b.granted.Check())
	})
	b.open(options...)
	return b
}

// open stops the pool and starts it again with the same lease file.
func (b *harness) open(options ...option) {
	b.t.Helper()
	b.stop()
	bolt, err := boltstore.Open(b.path, "test")
	if err != nil {
		b.t.Fatal(err)
	}
	b.store, b.bolt = &faultyStore{Store: bolt}, bolt
	b.Pool = pool.New(b.config(options...))
	b.load()
	b.stop = func() {
		if err := bolt.Close(); err != nil {
			b.t.Error(err)
		}
	}
}

func (b *harness) config(options ...option) pool.Config {
	c := pool.Config{
		Ranges: ranges("192.0.2.10-192.0.2.19"), CIDR: netip.MustParsePrefix("192.0.0.0/16"), Protected: []v1alpha1.AddressRange{{First: netip.MustParseAddr("192.0.2.2"), Last: netip.MustParseAddr("192.0.2.2")}},
		Lease: time.Hour, Quarantine: 10 * time.Minute, Store: b.store, Marker: b.bolt, Clock: b.clock, Log: slog.New(slog.NewTextHandler(b.log, nil)),
	}
	if b.directory != nil {
		c.Directory = b.directory
	}
	for _, o := range options {
		o(&c)
	}
	return c
}

// load passes the content of the store to the pool, and subscribes to the directory as Run does.
func (b *harness) load() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	b.Run(ended)
}

// advance advances the clock in steps of at most ten seconds, and runs Collect after each.
func (b *harness) advance(d time.Duration) {
	for end := b.clock.Now().Add(d); b.clock.Now().Before(end); {
		b.clock.Step(min(10*time.Second, end.Sub(b.clock.Now())))
		b.Collect(b.t.Context())
	}
}

// recordGrant records a grant and returns it.
func (b *harness) recordGrant(c pool.Client, a pool.Answer) pool.Answer {
	if a.Verdict == pool.Grant {
		b.granted.Granted(a.Addr, c.Holder, b.clock.Now(), a.Lease)
	}
	return a
}

// dora runs DISCOVER and SELECTING, and returns the leased address.
func (b *harness) dora(c pool.Client) netip.Addr {
	b.t.Helper()
	offer := b.Discover(c, netip.Addr{})
	if offer.Verdict != pool.Grant {
		b.t.Fatalf("%s: no offer: %s", c.Holder, offer.Reason)
	}
	ack := b.recordGrant(c, b.Select(b.t.Context(), c, offer.Addr))
	if ack.Verdict != pool.Grant || ack.Addr != offer.Addr {
		b.t.Fatalf("%s: no ACK of %v: %+v", c.Holder, offer.Addr, ack)
	}
	return ack.Addr
}

func (b *harness) verify(c pool.Client, addr netip.Addr) pool.Answer {
	return b.recordGrant(c, b.Verify(b.t.Context(), c, addr))
}

// wantVerdict checks verdict and reason of an answer.
func wantVerdict(t *testing.T, got pool.Answer, verdict pool.Verdict, why pool.Reason) {
	t.Helper()
	if got.Verdict != verdict || got.Reason != why {
		t.Errorf("got verdict %d with reason %q, want %d with reason %q", got.Verdict, got.Reason, verdict, why)
	}
}

func client(name string) pool.Client {
	return pool.Client{Holder: "mac:" + name, MAC: "02:00:00:00:00:02"}
}

func (b *harness) logCount(text string) int { return strings.Count(b.log.String(), text) }

func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(prefix, i)
	}
	return list
}

// replica returns a second pool on the same store, which has not seen the writes of the first one.
func (b *harness) replica(options ...option) *pool.Pool {
	p := pool.New(b.config(options...))
	p.Replace(nil, 0)
	return p
}

// A lan is a network with the MAC addresses that use its addresses.
type lan struct {
	users       map[netip.Addr]string
	unreachable bool   // addresses cannot be probed
	stale       bool   // the kernel's entries are stale
	occupied    string // MAC address that answers for all addresses; empty for none
	err         error
	probed      []netip.Addr
}

func (l *lan) probe(_ context.Context, addrs []netip.Addr) (map[netip.Addr]neighbours.Result, error) {
	l.probed = append(l.probed, addrs...)
	found := map[netip.Addr]neighbours.Result{}
	for _, a := range addrs {
		mac, err := net.ParseMAC(cmp.Or(l.users[a], l.occupied))
		switch {
		case l.unreachable:
		case err == nil:
			found[a] = neighbours.Result{Use: neighbours.Used, MAC: mac}
			if l.stale {
				found[a] = neighbours.Result{Use: neighbours.Unknown, MAC: mac}
			}
		default:
			found[a] = neighbours.Result{Use: neighbours.Free}
		}
	}
	return found, l.err
}

func withLAN(l *lan, ahead int) option {
	return func(c *pool.Config) { c.Probe, c.Ahead = l.probe, ahead }
}
