// Package leasedb is a CoreDHCP plugin that gives addresses and never the same one twice. What a client
// is promised is in a store before it hears of it: Lease objects of an API server, or a bbolt file.
// With a plugin such as kubevirt in front, an address belongs to a virtual machine's interface
// for as long as the machine exists; alone, leases end by the clock.
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

	"github.com/densityops/oooi/plugins/internal/vm"
)

// Plugin is for CoreDHCP's registry. It belongs behind the plugin that knows the machines, and in
// front of those that add options.
var Plugin = plugins.Plugin{Name: "leasedb", Setup4: setup4}

// process holds what CoreDHCP has set up: it gives plugins no context and never ends them.
var process struct {
	mu        sync.Mutex
	instances []*instance
}

// Check reports what is wrong with the plugin's arguments. It opens no file and reaches no server.
func Check(args ...string) error {
	_, err := parse(args)
	return err
}

// Network returns the clients' network that arguments name, and whether they have an address given to clients that nothing
// is reserved for. They must be valid.
func Network(args ...string) (cidr netip.Prefix, gives func(netip.Addr) bool, err error) {
	c, err := parse(args)
	if err != nil {
		return netip.Prefix{}, nil, err
	}
	return c.cidr, func(a netip.Addr) bool {
		_, ok := c.ranges.Number(a)
		return ok
	}, nil
}

// Protect returns arguments with some addresses that no client ever gets, reserved or not.
func Protect(args []string, addrs []netip.Addr) []string {
	args = slices.Clone(args)
	for _, a := range addrs {
		args = append(args, "protected="+a.String())
	}
	return args
}

func setup4(args ...string) (handler.Handler4, error) {
	i, err := start(args)
	if err != nil {
		return nil, err
	}
	return i.handle4, nil
}

// start makes an instance and lets it run until Shutdown.
func start(args []string) (*instance, error) {
	c, err := parse(args)
	if err != nil {
		return nil, err
	}
	process.mu.Lock()
	defer process.mu.Unlock()
	for _, other := range process.instances {
		if other.config.same(c) {
			return nil, fmt.Errorf("leasedb: pool=%s is there twice: give each network a pool of its own", c.pool)
		}
		if c.snapshot != "" && other.config.snapshot == c.snapshot {
			return nil, fmt.Errorf("leasedb: snapshot=%s is there twice: give each pool a file of its own", c.snapshot)
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

// Shutdown ends what the plugin has started: writes under way are finished, the snapshot file is written once
// more, the store is closed. It returns when that is done or the context has ended. Messages that
// still come are met with silence.
func Shutdown(ctx context.Context) error {
	process.mu.Lock()
	instances := process.instances
	process.instances = nil
	process.mu.Unlock()
	var failed error
	for _, i := range instances {
		if err := i.close(ctx); err != nil && failed == nil {
			failed = fmt.Errorf("leasedb: ending pool %s: %w", i.config.pool, err)
		}
	}
	return failed
}

// Ready reports whether every pool that was set up has bindings to answer from, whatever their age; and
// true where there is none.
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
