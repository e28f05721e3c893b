// Package store defines the interface between leasedb and a store of bindings: it lists all bindings once, reports
// changes by other writers, and writes single bindings by compare-and-swap.
package store

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/densityops/oooi/internal/dhcplease"
)

// Declined is the holder of an address that a client has declined because another host uses it.
const Declined = dhcplease.Declined

// A Binding assigns an address to a holder.
type Binding = dhcplease.Binding

// A Sink receives the content of a store. Its methods may be called concurrently. Changes may arrive after the result
// of a later write; their revisions show this.
type Sink interface {
	// Replace receives all bindings as of a revision.
	Replace(all []Binding, revision uint64)
	// Set receives a binding that was written.
	Set(Binding)
	// Remove receives the deletion of a binding, with the revision of the deletion.
	Remove(addr netip.Addr, revision uint64)
}

// A Store stores the bindings of one pool and address family. Its methods are safe for concurrent use.
type Store interface {
	// Run passes all bindings and then all changes to the sink, until ctx is done. It retries after an error.
	Run(ctx context.Context, sink Sink)
	// Put replaces the binding with the UID and Revision of b. When the new binding is durable, Put returns it with
	// its new UID and Revision. The error matches ErrConflict if the stored binding is another one. After any other
	// error, the binding may have been written or not.
	Put(ctx context.Context, b Binding) (Binding, error)
	// Get returns a binding. The error matches ErrNotFound if it does not exist, and ErrUnusable if the stored object
	// is not a valid binding.
	Get(ctx context.Context, addr netip.Addr) (Binding, error)
	// Delete deletes the binding with the UID and Revision of b. The error matches ErrConflict if the stored binding
	// is another one.
	Delete(ctx context.Context, b Binding) error
	// Synced reports whether the sink has the current content of the store, so that writes are likely to succeed.
	Synced() bool
	// Close releases the resources of the store. Run must have returned.
	Close() error
}

// A Marker is a Store that also stores a mark, the latest time of the pool's clock. After a restart, leases that ended
// before the mark have expired.
type Marker interface {
	// Mark returns the stored mark, or the zero time.
	Mark() time.Time
	// SetMark replaces the mark.
	SetMark(at time.Time) error
}

// Errors of a Store.
var (
	ErrConflict = errors.New("the address has another binding in the store")
	ErrNotFound = errors.New("the store contains no binding for the address")
	ErrUnusable = errors.New("the stored object of the address is not a valid binding")
)
