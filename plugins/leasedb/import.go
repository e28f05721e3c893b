package leasedb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/leasestore"
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

// Imported is what becomes of an Assignment.
type Imported struct {
	Assignment

	// Kept: the binding was there already. Why is set where the assignment was left out. With neither it is new.
	Kept bool
	Why  error
}

// New reports whether the binding was not there before.
func (i Imported) New() bool { return !i.Kept && i.Why == nil }

// Why an Assignment is left out.
var (
	errOutside = errors.New("not an address that this pool gives")
	errOthers  = errors.New("the address is bound to another")
	errMore    = errors.New("the interface has another address")
)

// readTimeout is for how long an import waits for what is there.
const readTimeout = 30 * time.Second

// Import makes bindings for addresses that machines have already: of a network that another server
// served before, or after the lease file was lost. args are the plugin's. Of several addresses of one interface the first that
// is possible counts. Without write it only tells what it would do. No server may have a lease file open meanwhile;
// Lease objects can be imported at any time. The error is of the store; what was written before stays.
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
	there, err := readAll(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("leasedb: reading the bindings that there are: %w", err)
	}
	im := importing{config: c, byAddr: map[netip.Addr]store.Binding{}, byHolder: map[string]netip.Addr{}}
	for _, b := range there {
		im.add(b)
	}
	for _, a := range assignments {
		b, one := im.decide(a)
		if one.New() && write {
			_, err := s.Put(ctx, b)
			switch {
			case errors.Is(err, store.ErrConflict):
				one.Why = errOthers // a server was faster
			case err != nil:
				return result, fmt.Errorf("leasedb: importing %v: %w", a.Addr, err)
			}
		}
		if one.New() {
			im.add(b)
		}
		result = append(result, one)
	}
	return result, nil
}

// importing is what bindings there are, or would be.
type importing struct {
	config   config
	byAddr   map[netip.Addr]store.Binding
	byHolder map[string]netip.Addr
}

func (im *importing) add(b store.Binding) {
	im.byAddr[b.Addr] = b
	if !b.Released {
		im.byHolder[b.Holder] = b.Addr
	}
}

// decide returns the binding that an assignment makes, and what is to become of it.
func (im *importing) decide(a Assignment) (store.Binding, Imported) {
	i := vm.Interface{Namespace: a.Namespace, VM: a.VM, Name: a.Interface}
	before, there := im.byAddr[a.Addr]
	b := store.Binding{
		Addr: a.Addr, Holder: i.String(), MAC: a.MAC, Hostname: a.Hostname, Used: time.Now().UTC().Truncate(time.Microsecond),
		UID: before.UID, Revision: before.Revision, // of a released one, which it replaces
	}
	one := Imported{Assignment: a}
	_, named := vm.ParseInterface(b.Holder)
	_, inRange := im.config.ranges.Number(a.Addr)
	other, bound := im.byHolder[b.Holder]
	switch {
	case named != nil:
		one.Why = named
	case !inRange:
		one.Why = errOutside
	case bound && other == a.Addr:
		one.Kept = true
	case there && !before.Released:
		one.Why = errOthers
	case bound:
		one.Why = fmt.Errorf("%w, %v", errMore, other)
	}
	return b, one
}

// readAll reads a store once.
func readAll(ctx context.Context, s store.Store) ([]store.Binding, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	first := &firstTold{told: cancel}
	s.Run(ctx, first)
	if first.all != nil {
		return first.all, nil
	}
	if leases, ok := s.(*leasestore.Store); ok && leases.Failure() != "" {
		return nil, errors.New(leases.Failure())
	}
	return nil, ctx.Err() //nolint:wrapcheck // the caller does
}

// firstTold is a store.Sink that keeps what it is told first.
type firstTold struct {
	told context.CancelFunc
	once sync.Once
	all  []store.Binding
}

// Replace is store.Sink's, as are the next.
func (f *firstTold) Replace(all []store.Binding, _ uint64) {
	f.once.Do(func() {
		f.all = append([]store.Binding{}, all...)
		f.told()
	})
}

// Set is of no interest.
func (f *firstTold) Set(store.Binding) {}

// Remove is of no interest.
func (f *firstTold) Remove(netip.Addr, uint64) {}
