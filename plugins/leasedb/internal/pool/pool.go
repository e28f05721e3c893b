// Package pool decides which client has which address. It knows no packet: the plugin turns
// messages into its calls. What it promises is in a store before
// it says so; what the store holds it knows, so that a client that has an address needs no store.
package pool

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/neighbour"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	// holdFor is how long an offer is kept for its client.
	holdFor = time.Minute
	// goneFor is how long ago a machine's deletion must have been seen before its address is released.
	goneFor = time.Minute
	// missingFor is how much longer than a lease a synced directory must have lacked a machine whose
	// deletion nobody saw.
	missingFor = 10 * time.Minute
	// grace is how long after its end an ordinary lease is left alone: clocks differ.
	grace = time.Minute
	// affinityFor is how long a released address is remembered as its holder's.
	affinityFor = 24 * time.Hour
	// declinesPerClient is how many addresses one client can have quarantined in the time of a quarantine.
	declinesPerClient = 3
	// declineFor is how long after an ACK its client can decline the address. Checking it takes seconds (RFC 5227).
	declineFor = 30 * time.Second
	// unusableFor is how long an address is left alone whose place in the store something else has.
	unusableFor = 10 * time.Minute
	// writeTimeout bounds a write: the client asks again after 4 seconds.
	writeTimeout = 3 * time.Second
	// young is the part of an ordinary lease in which it is confirmed as it stands, without a write.
	young = 4
)

// Config says what a Pool gives to whom.
type Config struct {
	// Ranges are what it chooses from, CIDR is the network that they are in.
	Ranges Ranges
	CIDR   netip.Prefix
	// Own are addresses of the network that no client ever gets, reserved or not; Ranges have none of them.
	Own []Range
	// Lease is what a client is promised at a time; Quarantine, for how long a declined address is not given out.
	Lease, Quarantine time.Duration
	Store             store.Store
	// Directory knows the machines; nil for ordinary leases to everybody.
	Directory vm.Directory
	// Neighbours finds out who uses addresses; nil where nobody can. Ahead is how many free ones are looked at ahead of need.
	Neighbours func(context.Context, []netip.Addr) (map[netip.Addr]neighbour.Found, error)
	Ahead      int
	// Clock never jumps. Wall is the system's, which may; nil for none.
	Clock clock.WithTicker
	Wall  func() time.Time
	// Suspect says why the store may lack bindings; empty where it does not.
	Suspect string
	// Marker keeps the time; nil for a store that cannot.
	Marker store.Marker
	Log    *slog.Logger
}

// Client is who asks.
type Client struct {
	// Holder is the client's identity as bindings have it.
	Holder string
	// Machine: the identity is a machine's interface, and lasts as long as that.
	Machine bool
	// MAC and Hostname are written down for people.
	MAC, Hostname string
	// Reserved is the address that the client is to have; not valid for any.
	Reserved netip.Addr
}

// Pool keeps the bindings of one network and address family. All methods are safe for concurrent use.
type Pool struct {
	Config

	mu      sync.Mutex
	entries map[netip.Addr]*entry
	holders map[string]*holder
	taken   bitmap // addresses of the ranges that have an entry
	holds   []hold // in the order of their end; some are over already
	// reclaimable are addresses that others had and have no more, the longest unused first, as of relisted.
	reclaimable    []netip.Addr
	relisted       time.Time
	declines       map[string][]time.Time
	unused         []unused // free addresses that were looked at, the first of them first
	looked         int      // the number of the address to look at next
	loaded         bool     // the store's content was told once
	loadedAt       time.Time
	mark           time.Time     // the newest time that the store knew of when it was loaded
	marked         time.Time     // when the store was told the time
	jumps          uint64        // of the system clock
	offset         time.Duration // by which the system clock is ahead
	changes        uint64        // of bindings
	exhausted      uint64
	inUse          uint64 // addresses that were found in use
	lastCollect    time.Time
	lastWarned     time.Time // that no address is left
	lastFailed     time.Time // that a write failed, in the log
	lastLooked     time.Time // that addresses cannot be looked at
	lastDoubted    time.Time // that a DECLINE is not believed
	looking        int       // how many looks clients wait for
	batch          *batch    // the look that is about to be made
	saidRebuilding bool
	rebuilding     bool // the store was empty, and machines may have addresses that it should know

	// Of its own, so that who tells of a deletion never waits for who asks about machines.
	seenMu  sync.Mutex
	deleted map[string]time.Time // by holder, when its machine was seen to go
}

// entry is what is known of an address; addresses without any are free.
type entry struct {
	binding  store.Binding // without Holder: none
	heldBy   string        // who was offered it, until heldTill
	heldTill time.Time
	avoid    time.Time // declined by a client, or found in use; until then
	user     string    // the MAC address of whom it was found in use by, who may have it; empty for nobody
	writing  bool      // a write is on its way
	gone     time.Time // when the holder was seen to be deleted
	missing  time.Time // since when the directory lacks it
	// bound is when the binding was seen to become its holder's; zero where it was there before this process.
	bound time.Time
	// guard is until when a binding with an end holds at least.
	guard time.Time
	// acked is when the holder was last told to use the address without using it already; zero after a DECLINE.
	acked     time.Time
	confirmed bool // the holder has asked for it since this process began
	doubted   bool // the holder has declined it, and nobody was found to use it
	looked    bool // nobody was found to use it since it is kept for heldBy
	// describe is set where the client goes by another MAC or hostname than is written down.
	describe *Client
}

// holder is what is known of a client.
type holder struct {
	addrs   []netip.Addr // of its bindings
	held    netip.Addr   // what it was offered
	writing bool
}

type hold struct {
	addr  netip.Addr
	until time.Time
}

// New makes a Pool, which knows nothing until Run.
func New(c Config) *Pool {
	return &Pool{
		Config:  c,
		entries: map[netip.Addr]*entry{}, holders: map[string]*holder{}, taken: newBitmap(c.Ranges.Size()),
		declines: map[string][]time.Time{}, deleted: map[string]time.Time{},
		looked: rand.IntN(c.Ranges.Size()), //nolint:gosec // replicas are to look at different addresses; nothing secret
	}
}

// ready reports whether everything is known that a new binding or a refusal depends on.
func (p *Pool) ready() bool {
	return p.loaded && p.Store.Synced() && (p.Directory == nil || p.Directory.Synced())
}

// entry returns an address's entry, made if need be.
func (p *Pool) entry(a netip.Addr) *entry {
	e := p.entries[a]
	if e == nil {
		e = &entry{}
		p.entries[a] = e
		if i, ok := p.Ranges.Number(a); ok {
			p.taken.set(i, true)
		}
	}
	return e
}

// tidy forgets an address of which nothing is left to know.
func (p *Pool) tidy(a netip.Addr) {
	e := p.entries[a]
	if e == nil || e.binding.Holder != "" || e.heldBy != "" || e.writing || e.avoid.After(p.Clock.Now()) {
		return
	}
	delete(p.entries, a)
	if i, ok := p.Ranges.Number(a); ok {
		p.taken.set(i, false)
	}
}

func (p *Pool) holder(name string) *holder {
	h := p.holders[name]
	if h == nil {
		h = &holder{}
		p.holders[name] = h
	}
	return h
}

func (p *Pool) tidyHolder(name string) {
	if h := p.holders[name]; h != nil && len(h.addrs) == 0 && !h.held.IsValid() && !h.writing {
		delete(p.holders, name)
	}
}
