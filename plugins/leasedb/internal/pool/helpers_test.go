package pool_test

import (
	"bytes"
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

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/boltstore"
	"github.com/densityops/oooi/plugins/leasedb/internal/leasetest"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// faulty is a store that can be away, as an API server can, and counts what is written.
type faulty struct {
	store.Store

	away    atomic.Bool
	failing atomic.Bool // though it does not know
	writes  atomic.Int64
	// meanwhile, if set, happens while a write is on its way.
	meanwhile func()
}

var errAway = errors.New("the store is away")

func (s *faulty) Synced() bool { return !s.away.Load() }

func (s *faulty) Put(ctx context.Context, b store.Binding) (store.Binding, error) {
	if s.away.Load() || s.failing.Load() {
		return store.Binding{}, errAway
	}
	if s.meanwhile != nil {
		s.meanwhile()
	}
	s.writes.Add(1)
	return s.Store.Put(ctx, b)
}

func (s *faulty) Delete(ctx context.Context, b store.Binding) error {
	if s.away.Load() {
		return errAway
	}
	return s.Store.Delete(ctx, b)
}

// directory knows the machines that a test makes.
type directory struct {
	mu           sync.Mutex
	machines     map[vm.Interface]bool
	reserved     map[netip.Addr]vm.Interface
	reservations []vm.Client
	refused      map[vm.Interface]string
	unsynced     bool
	deleted      []func(vm.Interface)
}

// Lookup knows who has a MAC address of the form 02:00:00:00:01:xx; which machine it is, is the plugin's business.
func (d *directory) Lookup(mac net.HardwareAddr) (vm.Client, bool) {
	return vm.Client{}, len(mac) == 6 && mac[4] == 1
}

func (d *directory) Clients() []vm.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []vm.Client
	for i := range d.machines {
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

// reserve reserves an address for a machine, which exists from now on.
func (d *directory) reserve(name string, addr netip.Addr) pool.Client {
	c := d.boot(name)
	c.Reserved = addr
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reserved == nil {
		d.reserved = map[netip.Addr]vm.Interface{}
	}
	d.reservations = append(d.reservations, vm.Client{Interface: face(name), Reserved: []netip.Addr{addr}})
	if _, taken := d.reserved[addr]; !taken {
		d.reserved[addr] = face(name)
	}
	return c
}

func (d *directory) Reservations() []vm.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reservations
}

func (d *directory) Refused(all map[vm.Interface]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = all
}

func (d *directory) Exists(i vm.Interface) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machines[i]
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

func face(name string) vm.Interface { return vm.Interface{Namespace: "demo", VM: name, Name: "vlan"} }

// boot makes a machine known.
func (d *directory) boot(name string) pool.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.machines[face(name)] = true
	return pool.Client{Holder: face(name).String(), Machine: true, MAC: "02:00:00:00:00:01", Hostname: name}
}

// remove deletes a machine, seen or not.
func (d *directory) remove(name string, seen bool) {
	d.mu.Lock()
	delete(d.machines, face(name))
	subscribers := d.deleted
	d.mu.Unlock()
	for _, f := range subscribers {
		if seen {
			f(face(name))
		}
	}
}

// bench is a pool with what is around it.
type bench struct {
	*pool.Pool

	t         *testing.T
	path      string
	clock     *clocktesting.FakeClock
	store     *faulty
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
	r, err := pool.ParseRange(text)
	if err != nil {
		panic(err)
	}
	all, err := pool.NewRanges([]pool.Range{r}, nil)
	if err != nil {
		panic(err)
	}
	return all
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// machines makes a bench whose pool serves the machines of a directory, ordinary one that serves everybody.
func machines(t *testing.T, options ...option) *bench {
	t.Helper()
	return newBench(t, &directory{machines: map[vm.Interface]bool{}}, options)
}

func ordinary(t *testing.T, options ...option) *bench {
	t.Helper()
	return newBench(t, nil, options)
}

func newBench(t *testing.T, d *directory, options []option) *bench {
	t.Helper()
	b := &bench{
		t: t, path: filepath.Join(t.TempDir(), "leases.db"), clock: clocktesting.NewFakeClock(start), directory: d,
		granted: &leasetest.Log{}, log: &bytes.Buffer{}, stop: func() {},
	}
	t.Cleanup(func() {
		b.stop()
		if err := b.granted.Check(); err != nil {
			t.Error(err)
		}
	})
	b.open(options...)
	return b
}

// open starts the pool over what the file holds, after ending the one before.
func (b *bench) open(options ...option) {
	b.t.Helper()
	b.stop()
	bolt, err := boltstore.Open(b.path, "test")
	if err != nil {
		b.t.Fatal(err)
	}
	b.store, b.bolt = &faulty{Store: bolt}, bolt
	b.Pool = pool.New(b.config(options...))
	b.load()
	b.stop = func() {
		if err := bolt.Close(); err != nil {
			b.t.Error(err)
		}
	}
}

func (b *bench) config(options ...option) pool.Config {
	c := pool.Config{
		Ranges: ranges("192.0.2.10-192.0.2.19"), CIDR: netip.MustParsePrefix("192.0.0.0/16"), Own: []pool.Range{{First: netip.MustParseAddr("192.0.2.2"), Last: netip.MustParseAddr("192.0.2.2")}},
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

// load tells the pool what the store holds, and subscribes to the directory as Run does.
func (b *bench) load() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	b.Run(ended)
}

// pass lets time go by, with the collector at work.
func (b *bench) pass(d time.Duration) {
	for end := b.clock.Now().Add(d); b.clock.Now().Before(end); {
		b.clock.Step(min(10*time.Second, end.Sub(b.clock.Now())))
		b.Collect(b.t.Context())
	}
}

// note takes down what a client was told.
func (b *bench) note(c pool.Client, a pool.Answer) pool.Answer {
	if a.Verdict == pool.Grant {
		b.granted.Granted(a.Addr, c.Holder, b.clock.Now(), a.Lease)
	}
	return a
}

// dora is a client that gets an address.
func (b *bench) dora(c pool.Client) netip.Addr {
	b.t.Helper()
	offer := b.Discover(c, netip.Addr{})
	if offer.Verdict != pool.Grant {
		b.t.Fatalf("%s: no offer: %s", c.Holder, offer.Reason)
	}
	ack := b.note(c, b.Select(b.t.Context(), c, offer.Addr))
	if ack.Verdict != pool.Grant || ack.Addr != offer.Addr {
		b.t.Fatalf("%s: no ACK of %v: %+v", c.Holder, offer.Addr, ack)
	}
	return ack.Addr
}

func (b *bench) verify(c pool.Client, addr netip.Addr) pool.Answer {
	return b.note(c, b.Verify(b.t.Context(), c, addr))
}

// wantVerdict fails unless the answer is this one.
func wantVerdict(t *testing.T, got pool.Answer, verdict pool.Verdict, why pool.Reason) {
	t.Helper()
	if got.Verdict != verdict || got.Reason != why {
		t.Errorf("got verdict %d because of %q, want %d because of %q", got.Verdict, got.Reason, verdict, why)
	}
}

func client(name string) pool.Client {
	return pool.Client{Holder: "mac:" + name, MAC: "02:00:00:00:00:02"}
}

func (b *bench) logged(text string) int { return strings.Count(b.log.String(), text) }

func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(prefix, i)
	}
	return list
}
