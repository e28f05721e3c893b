package leasedb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/plugins/leasedb/internal/leasestore"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// An Assignment is an address that the status of a VM reports for an interface.
type Assignment struct {
	dhcplease.Interface

	MAC, Hostname string
	Addr          netip.Addr
}

// Imported is the result of importing an Assignment.
type Imported struct {
	Assignment

	// Kept is set if the binding exists already.
	Kept bool
	// Err is why the assignment was skipped. It is nil for a binding that exists already or is new.
	Err error
}

// New reports whether the binding is new: it did not exist, and was not skipped.
func (i Imported) New() bool { return !i.Kept && i.Err == nil }

// Reasons why an Assignment is skipped.
var (
	errOutside = errors.New("the address is not in the ranges of the pool")
	errOthers  = errors.New("the address is bound to another client")
	errMore    = errors.New("the interface has another address")
)

// readTimeout is the timeout for reading the existing bindings.
const readTimeout = 30 * time.Second

// Import creates bindings for addresses that VMs already have: when another server has served the network, or after a
// lease file was lost. args are the plugin's arguments. If an interface has several addresses, Import binds the first
// one that can be leased. If write is false, Import writes nothing and returns the results that it would have. A lease
// file must not be open in a server during the import; Lease objects can be imported at any time. If Import returns an
// error, the bindings that it has written before remain, and result contains them.
func Import(ctx context.Context, args []string, write bool, assignments []Assignment) (result []Imported, err error) {
	c, err := parse(args)
	if err != nil {
		return nil, err
	}
	s, err := openStore(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("leasedb: %w", err)
	}
	defer func() {
		if closed := s.Close(); err == nil && closed != nil {
			err = fmt.Errorf("leasedb: %w", closed)
		}
	}()
	existing, err := readAll(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("leasedb: reading the existing bindings: %w", err)
	}
	im := importer{config: c, byAddr: map[netip.Addr]store.Binding{}, byHolder: map[string]netip.Addr{}}
	for _, b := range existing {
		im.add(b)
	}
	for _, a := range assignments {
		b, imported := im.decide(a)
		if imported.New() && write {
			_, err := s.Put(ctx, b)
			switch {
			case errors.Is(err, store.ErrConflict):
				imported.Err = errOthers // a server has written a binding in the meantime
			case err != nil:
				return result, fmt.Errorf("leasedb: importing %v: %w", a.Addr, err)
			}
		}
		if imported.New() {
			im.add(b)
		}
		result = append(result, imported)
	}
	return result, nil
}

// An importer contains the existing bindings, and those that the import adds.
type importer struct {
	config   config
	byAddr   map[netip.Addr]store.Binding
	byHolder map[string]netip.Addr
}

func (im *importer) add(b store.Binding) {
	im.byAddr[b.Addr] = b
	if !b.Released {
		im.byHolder[b.Holder] = b.Addr
	}
}

// decide returns the binding for an assignment, and the result.
func (im *importer) decide(a Assignment) (store.Binding, Imported) {
	before, found := im.byAddr[a.Addr]
	b := store.Binding{
		Addr: a.Addr, Holder: a.String(), MAC: a.MAC, Hostname: a.Hostname, Used: time.Now().UTC().Truncate(time.Microsecond),
		UID: before.UID, Revision: before.Revision, // of the released binding that this one replaces
	}
	imported := Imported{Assignment: a}
	_, invalid := dhcplease.ParseInterface(b.Holder)
	_, inRange := im.config.ranges.Number(a.Addr)
	other, bound := im.byHolder[b.Holder]
	switch {
	case invalid != nil:
		imported.Err = invalid
	case !inRange:
		imported.Err = errOutside
	case bound && other == a.Addr:
		imported.Kept = true
	case found && !before.Released:
		imported.Err = errOthers
	case bound:
		imported.Err = fmt.Errorf("%w, %v", errMore, other)
	}
	return b, imported
}

// readAll returns all bindings of a store.
func readAll(ctx context.Context, s store.Store) ([]store.Binding, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	first := &firstList{cancel: cancel}
	s.Run(ctx, first)
	if first.all != nil {
		return first.all, nil
	}
	if leases, ok := s.(*leasestore.Store); ok && leases.Failure() != "" {
		return nil, errors.New(leases.Failure())
	}
	return nil, ctx.Err()
}

// A firstList is a store.Sink that keeps the first list of bindings.
type firstList struct {
	cancel context.CancelFunc
	once   sync.Once
	all    []store.Binding
}

// Replace implements store.Sink.
func (f *firstList) Replace(all []store.Binding, _ uint64) {
	f.once.Do(func() {
		f.all = append([]store.Binding{}, all...)
		f.cancel()
	})
}

// Set implements store.Sink. It does nothing.
func (f *firstList) Set(store.Binding) {}

// Remove implements store.Sink. It does nothing.
func (f *firstList) Remove(netip.Addr, uint64) {}
