// Package pool assigns addresses to clients, independently of packets: the plugin translates messages to its
// methods. It writes each binding to a store before it grants it, and keeps all bindings in memory, so a client
// with an address is answered without the store.
package pool

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	// holdFor is the time for which an offer is held.
	holdFor = time.Minute
	// deletedFor is the time from the observed deletion of a VM to the release of its address.
	deletedFor = time.Minute
	// missingFor is the time, in addition to the lease time, for which a synced directory must lack a VM before its
	// address is released, if the deletion was not observed.
	missingFor = 10 * time.Minute
	// grace is the time after the end of an ordinary lease in which the address is not reused, because clocks
	// differ.
	grace = time.Minute
	// affinityFor is the time for which a released address is remembered for its previous holder.
	affinityFor = 24 * time.Hour
	// declinesPerClient is the maximum number of addresses of one client in quarantine.
	declinesPerClient = 3
	// declineFor is the time after an ACK in which a DECLINE is accepted. A client needs some seconds to check an
	// address (RFC 5227).
	declineFor = 30 * time.Second
	// unusableFor is the time for which an address is not leased if its stored object is not a valid binding.
	unusableFor = 10 * time.Minute
	// writeTimeout is the timeout of a write. Clients retry after 4 seconds.
	writeTimeout = 3 * time.Second
	// youngPart is the divisor of the lease time: in the first quarter of an ordinary lease, a renewal writes
	// nothing.
	youngPart = 4
)

// Config is the configuration of a Pool.
type Config struct {
	// Ranges contains the addresses to lease, CIDR is their network.
	Ranges Ranges
	CIDR   netip.Prefix
	// Protected are addresses of the network that are never leased, not even by a reservation. Ranges does not
	// contain them.
	Protected []v1alpha1.AddressRange
	// Lease is the lease time. Quarantine is the time for which a declined address is not leased. An address that a
	// probe found in use is not leased for at least 5 minutes.
	Lease, Quarantine time.Duration
	Store             store.Store
	// Directory contains the VMs; nil for ordinary leases.
	Directory vm.Directory
	// Probe finds out which addresses are in use; nil for none, so that no address is probed. Ahead is the
	// number of free addresses to probe in advance.
	Probe func(context.Context, []netip.Addr) (map[netip.Addr]neighbours.Result, error)
	Ahead int
	// Clock must not jump. Wall is the system clock, which may jump; nil to ignore it.
	Clock clock.WithTicker
	Wall  func() time.Time
	// Suspect is the reason why the store may lack bindings, or empty.
	Suspect string
	// Marker stores the time mark; nil if the store cannot store one.
	Marker store.Marker
	Log    *slog.Logger
}

// A Client is the sender of a message.
type Client struct {
	// Holder is the identity of the client in bindings.
	Holder string
	// VM is set if the client is a VM interface. Its bindings last as long as the VM.
	VM bool
	// MAC and Hostname are stored for users.
	MAC, Hostname string
	// Reserved is the address reserved for the client; invalid for none.
	Reserved netip.Addr
}

// A Pool contains the bindings of one network and address family. Its methods are safe for concurrent use.
type Pool struct {
	Config

	mu      sync.Mutex
	entries map[netip.Addr]*entry
	holders map[string]*holder
	taken   bitmap // addresses of the ranges with an entry
	holds   []hold // by expiry; some may have ended
	// reclaimable are addresses whose bindings have ended, the longest unused first, as of relisted.
	reclaimable        []netip.Addr
	relisted           time.Time
	declines           map[string][]time.Time
	lost               map[string]Lost // by holder
	unused             []unused        // probed free addresses, the oldest first
	nextProbe          int             // number of the next address to probe
	loaded             bool            // the first list of the store or the snapshot file was received
	loadedAt           time.Time
	started            time.Time
	mark               time.Time     // newest time in the store when it was loaded
	marked             time.Time     // time of the last mark
	jumps              uint64        // number of jumps of the system clock
	offset             time.Duration // of the system clock relative to Clock
	changes            uint64        // number of changes to bindings
	exhausted          uint64
	inUse              uint64 // number of free addresses that were found in use
	lastCollect        time.Time
	lastExhausted      time.Time // last log message that no address is left
	lastFailedWrite    time.Time // last log message of a failed write
	lastFailedProbe    time.Time // last log message of a failed probe
	lastIgnoredDecline time.Time // last log message of an ignored DECLINE
	pendingProbes      int       // number of probes that clients wait for
	batch              *batch    // the next probe
	rebuildingLogged   bool
	rebuilding         bool // bindings may be missing; addresses are probed before they are offered

	// A separate mutex, so that recordDeletion does not wait for a call of the directory that holds mu.
	deletedMu sync.Mutex
	deleted   map[string]time.Time // time of the observed deletion, by holder
}

// An entry is the state of an address. Addresses without an entry are free.
type entry struct {
	binding      store.Binding // none if Holder is empty
	heldBy       string        // holder that it is offered to, until heldTill
	heldTill     time.Time
	avoidUntil   time.Time // not leased until then: declined, found in use, or not usable
	user         string    // MAC address that was found to use it and may lease it; empty for none
	usage        *usage    // of an address that was declined or found in use; nil otherwise
	writing      bool      // a write is in flight
	deletedAt    time.Time // when the deletion of the holder was observed
	missingSince time.Time // since when the directory lacks the holder
	// boundAt is when the holder got the binding; zero if the binding is older than this process.
	boundAt time.Time
	// minEnd is the earliest time at which an expiring binding may end.
	minEnd time.Time
	// ackedAt is the time of the last ACK to the holder; zero after a renewal or a DECLINE.
	ackedAt            time.Time
	requestedAt        time.Time // of the last request of the holder that was granted
	confirmed          bool      // the holder was in contact since this process started
	unconfirmedDecline bool      // the holder has declined it, but no host was found to use it
	probed             bool      // a probe for heldBy found no other host
	// newDescription is set if MAC address or hostname of the client differ from the stored ones.
	newDescription *Client
}

// A holder is the state of a client.
type holder struct {
	addrs   []netip.Addr // addresses of its bindings
	held    netip.Addr   // the offered address
	writing bool
}

type hold struct {
	addr  netip.Addr
	until time.Time
}

// New returns a Pool. It is empty until Run, or a call of Replace with the content of a snapshot file. c.Ranges must
// not be empty.
func New(c Config) *Pool {
	return &Pool{
		Config: c, started: c.Clock.Now(),
		entries: map[netip.Addr]*entry{}, holders: map[string]*holder{}, taken: newBitmap(c.Ranges.Size()),
		declines: map[string][]time.Time{}, lost: map[string]Lost{}, deleted: map[string]time.Time{},
		nextProbe: rand.IntN(c.Ranges.Size()), //nolint:gosec // not secret: replicas should probe different addresses
	}
}

// ready reports whether store and directory are synced, which new bindings and refusals require.
func (p *Pool) ready() bool {
	return p.loaded && p.Store.Synced() && (p.Directory == nil || p.Directory.Synced())
}

// entry returns the entry of an address, and adds it if it does not exist.
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

// removeIfEmpty removes an entry without state.
func (p *Pool) removeIfEmpty(a netip.Addr) {
	e := p.entries[a]
	if e == nil || e.binding.Holder != "" || e.heldBy != "" || e.writing || e.avoidUntil.After(p.Clock.Now()) {
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

func (p *Pool) removeHolderIfEmpty(name string) {
	if h := p.holders[name]; h != nil && len(h.addrs) == 0 && !h.held.IsValid() && !h.writing {
		delete(p.holders, name)
	}
}
