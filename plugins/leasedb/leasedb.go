// Package leasedb implements a CoreDHCP plugin that leases IPv4 addresses and never leases one address to two
// clients. It writes each lease to a store before it acknowledges it: to Lease objects of an API server, or to a
// bbolt file. With the plugin kubevirt, an address belongs to a VM interface for as long as the VM exists; without
// it, leases expire.
package leasedb

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/coredhcp/coredhcp/handler"
	"github.com/coredhcp/coredhcp/plugins"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// Plugin is the plugin's entry for CoreDHCP's registry. It must follow kubevirt and precede the plugins that add
// options.
var Plugin = plugins.Plugin{Name: "leasedb", Setup4: setup4}

// process is the global state of the plugin: CoreDHCP passes plugins no context and does not stop them.
var process struct {
	mu        sync.Mutex
	instances []*instance
}

// Check returns an error if the plugin's arguments are invalid. It opens no file and contacts no server.
func Check(args ...string) error {
	_, err := parse(args)
	return err
}

// Network returns the network of the clients, and a function that reports whether an address is in the ranges and not
// excluded: only such an address can be leased to a client without a reservation. args are the plugin's arguments; it
// is an error if they are invalid.
func Network(args ...string) (cidr netip.Prefix, leases func(netip.Addr) bool, err error) {
	c, err := parse(args)
	if err != nil {
		return netip.Prefix{}, nil, err
	}
	return c.cidr, func(a netip.Addr) bool {
		_, ok := c.ranges.Number(a)
		return ok
	}, nil
}

// Protect returns a copy of the plugin's arguments in which addrs are protected, so that they are leased to no client,
// not even by a reservation.
func Protect(args []string, addrs []netip.Addr) []string {
	args = slices.Clone(args)
	for _, a := range addrs {
		args = append(args, "protected="+a.String())
	}
	return args
}

// Protected returns the single addresses of clients' networks that all pools protect: the addresses of the gateway
// and of servers.
func Protected() []netip.Addr {
	var list []netip.Addr
	for _, i := range running() {
		list = append(list, i.config.protectedHosts()...)
	}
	return list
}

// SharedPool returns "namespace/pool" of a pool whose leases replicas share; empty for none.
func SharedPool() string {
	for _, i := range running() {
		if i.config.store == storeKubernetes {
			return i.config.namespace + "/" + i.config.pool
		}
	}
	return ""
}

// protectedHosts returns the single protected addresses that a host of the network can have.
func (c *config) protectedHosts() []netip.Addr {
	var list []netip.Addr
	for _, r := range c.protected {
		if r.First == r.Last && c.cidr.Contains(r.First) && r.First != c.cidr.Masked().Addr() && r.First != v1alpha1.RangeOf(c.cidr).Last {
			list = append(list, r.First)
		}
	}
	return list
}

// RecentClients returns at most n addresses of clients that are likely to be on the VLAN, the most recently written
// first: of bindings in force, whose VM runs if addresses belong to VMs.
func RecentClients(n int) []netip.Addr {
	var list []pool.Lease
	for _, i := range running() {
		runs := map[string]bool{} // by holder
		if i.directory != nil {
			for _, c := range i.directory.Clients() {
				runs[c.String()] = true
			}
		}
		for _, l := range i.pool.Leases() {
			if l.State == dhcplease.StateBound && (i.directory == nil || runs[l.Holder]) {
				list = append(list, l)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b pool.Lease) int { return b.Used.Compare(a.Used) })
	var addresses []netip.Addr
	for _, l := range list[:min(n, len(list))] {
		addresses = append(addresses, l.Addr)
	}
	return addresses
}

func setup4(args ...string) (handler.Handler4, error) {
	i, err := start(args)
	if err != nil {
		return nil, err
	}
	return i.handle4, nil
}

// start starts an instance, which runs until Shutdown.
func start(args []string) (*instance, error) {
	c, err := parse(args)
	if err != nil {
		return nil, err
	}
	process.mu.Lock()
	defer process.mu.Unlock()
	for _, other := range process.instances {
		if other.config.sharesBindings(c) {
			return nil, fmt.Errorf("leasedb: duplicate pool=%s; use one pool per network", c.pool)
		}
		if c.snapshot != "" && other.config.snapshot == c.snapshot {
			return nil, fmt.Errorf("leasedb: duplicate snapshot=%s; use one file per pool", c.snapshot)
		}
	}
	i, err := open(c, vm.Provided(), slog.Default().With("plugin", "leasedb", "pool", c.pool, "family", family))
	if err != nil {
		return nil, fmt.Errorf("leasedb: %w", err)
	}
	i.run()
	process.instances = append(process.instances, i)
	return i, nil
}

// Shutdown stops all pools: it finishes pending writes, writes the snapshot files and closes the stores. It returns the
// first error; if ctx is done before a pool has stopped, that is an error. Later messages get no reply.
func Shutdown(ctx context.Context) error {
	process.mu.Lock()
	instances := process.instances
	process.instances = nil
	process.mu.Unlock()
	var failed error
	for _, i := range instances {
		if err := i.close(ctx); err != nil && failed == nil {
			failed = fmt.Errorf("leasedb: shutting down pool %s: %w", i.config.pool, err)
		}
	}
	return failed
}

// Ready reports whether every pool has bindings to answer from, of any age. It returns true if there is no pool.
func Ready() bool {
	for _, i := range running() {
		if !i.pool.Loaded() {
			return false
		}
	}
	return true
}

func running() []*instance {
	process.mu.Lock()
	defer process.mu.Unlock()
	return append([]*instance(nil), process.instances...)
}
