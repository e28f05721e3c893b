package leasedb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Assignment is an address that a virtual machine's interface has, as its status says.
type Assignment struct {
	// Namespace, VM and Interface are as the plugin kubevirt names them: of the VirtualMachine, or of the
	// instance where there is none, and of the interface in its specification.
	Namespace, VM, Interface string
	MAC, Hostname            string
	Addr                     netip.Addr
}

// Imported is what Import did with each Assignment.
type Imported struct {
	// Written are new bindings, Kept were there already.
	Written, Kept int
	// Skipped are those that could not be taken over, with the reason.
	Skipped map[Assignment]error
}

// What keeps an Assignment from being taken over.
var (
	errOutside = errors.New("the address is not one that this pool gives")
	errOthers  = errors.New("the address is bound to another machine")
)

// Import writes bindings for addresses that machines have already: of a network that another server
// served before, or after the lease file was lost. args are the plugin's. No server may have
// a lease file open meanwhile; Lease objects can be imported at any time. The error is of the store;
// what was written before stays.
func Import(ctx context.Context, args []string, assignments []Assignment) (Imported, error) {
	result := Imported{Skipped: map[Assignment]error{}}
	c, err := parse(args, len(assignments) > 0 && assignments[0].Addr.Is6())
	if err != nil {
		return result, err
	}
	s, err := openStore(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return result, fmt.Errorf("leasedb: %w", err)
	}
	for _, a := range assignments {
		why, failed := importOne(ctx, s, c, a)
		switch {
		case failed != nil:
			return result, errors.Join(fmt.Errorf("leasedb: importing %v: %w", a.Addr, failed), s.Close())
		case errors.Is(why, errKept):
			result.Kept++
		case why != nil:
			result.Skipped[a] = why
		default:
			result.Written++
		}
	}
	if err := s.Close(); err != nil {
		return result, fmt.Errorf("leasedb: %w", err)
	}
	return result, nil
}

var errKept = errors.New("it is there already")

// importOne returns why an assignment was not written, and what failed in the store.
func importOne(ctx context.Context, s store.Store, c config, a Assignment) (why, failed error) {
	i := vm.Interface{Namespace: a.Namespace, VM: a.VM, Name: a.Interface}
	if _, err := vm.ParseInterface(i.String()); err != nil {
		return err, nil
	}
	if _, ok := c.ranges.Number(a.Addr); !ok {
		return errOutside, nil
	}
	b := store.Binding{
		Addr: a.Addr, Holder: i.String(), MAC: a.MAC, Hostname: a.Hostname, Used: time.Now().UTC().Truncate(time.Microsecond),
	}
	_, err := s.Put(ctx, b)
	if !errors.Is(err, store.ErrConflict) {
		return nil, err //nolint:wrapcheck // the caller does
	}
	there, err := s.Get(ctx, a.Addr)
	switch {
	case err != nil:
		return nil, err //nolint:wrapcheck // the caller does
	case there.Holder == b.Holder && !there.Released:
		return errKept, nil
	default:
		return errOthers, nil
	}
}
