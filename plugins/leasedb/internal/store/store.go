// Package store says what leasedb needs of a place that keeps bindings: reads all of them
// once, hears of what others write, and writes one at a time by compare-and-swap.
package store

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// Declined is the holder of an address that a client found to be in use by somebody else.
const Declined = "declined"

// Binding is one address and whose it is.
type Binding struct {
	Addr netip.Addr `json:"addr"`
	// Holder is "namespace/vm/interface" of a machine, "id:HEX" or "mac:HEX" of a client
	// without such an identity, or Declined.
	Holder string `json:"holder"`
	// MAC and Hostname describe the holder to people; nothing depends on them.
	MAC      string `json:"mac,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	// Expires is when the binding ends; zero where it lasts as long as the machine.
	Expires time.Time `json:"expires,omitzero"`
	// Used is when the binding was last written, to the microsecond: the newest of a
	// holder's bindings is the one in force.
	Used time.Time `json:"used"`
	// Released: the holder has the address no more, but gets it back while nobody else
	// needed it.
	Released bool `json:"released,omitempty"`

	// UID and Revision tell what a write replaces; both zero: nothing. Revisions of one store only grow.
	UID      string `json:"uid,omitempty"`
	Revision uint64 `json:"revision"`
}

// Sink is told what a store holds. Its methods may be called concurrently, and with news
// that is older than what a write returned.
type Sink interface {
	// Replace tells all that there is as of a revision.
	Replace(all []Binding, revision uint64)
	// Set tells of one binding that was written.
	Set(Binding)
	// Remove tells of one binding that was deleted, with the revision of that.
	Remove(addr netip.Addr, revision uint64)
}

// Store keeps the bindings of one pool and address family. All methods are safe for concurrent use.
type Store interface {
	// Run tells the sink everything, then what changes, until the context ends.
	Run(ctx context.Context, sink Sink)
	// Put writes a binding in place of the one with its UID and Revision and returns it with its
	// new ones, once it is durable. The error is ErrConflict where something else is there.
	Put(ctx context.Context, b Binding) (Binding, error)
	// Get reads one binding; ErrNotFound where there is none, ErrUnusable where something else is in its place.
	Get(ctx context.Context, addr netip.Addr) (Binding, error)
	// Delete deletes exactly the binding with this UID and Revision, else ErrConflict.
	Delete(ctx context.Context, b Binding) error
	// Synced reports whether the sink knows everything as it is now, and a write is worth trying.
	Synced() bool
	// Close ends what Open began; Run must have returned.
	Close() error
}

// Marker is a Store that keeps a pool's newest time, so that a restart knows what had ended before.
type Marker interface {
	// Mark returns the time that was set last; zero for none.
	Mark() time.Time
	// SetMark keeps a time.
	SetMark(at time.Time) error
}

// What a write can meet.
var (
	ErrConflict = errors.New("the address has another binding in the store")
	ErrNotFound = errors.New("the address has no binding in the store")
	ErrUnusable = errors.New("what the store has for the address is no binding")
)
