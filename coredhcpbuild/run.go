package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/coredhcp/coredhcp/config"
	"github.com/coredhcp/coredhcp/plugins"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/densityops/oooi/coredhcpbuild/internal/dhcp4"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
)

// check validates a configuration file and prints the number of its plugins.
func check(path string, out io.Writer) error {
	if err := register(); err != nil {
		return err
	}
	c, err := load(path)
	if err != nil {
		return err
	}
	n := 0
	err = c.each(func(single *config.Config, p config.PluginConfig) error {
		n++
		if validated, err := validate(p.Name, p.Args); validated {
			return err
		}
		_, _, err := plugins.LoadPlugins(single)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is valid: %d plugins\n", path, n)
	return nil
}

// run serves until ctx is done or a server fails.
func (f *flags) run(ctx context.Context, log *slog.Logger) error {
	if err := register(); err != nil {
		return err
	}
	c, err := load(f.config)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(kubevirt.Collector(), leasedb.Collector())
	l, err := daemon.Listen(ctx, f.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	if err := neighbours.Announce(ctx); err != nil {
		log.Warn("gratuitous ARP failed; neighbour caches may be stale", "err", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	server, err := f.listen4(ctx, c, log, registry)
	if err != nil {
		return errors.Join(err, l.Close(), shutdown(ctx))
	}
	r := &reporter{config: c, server: server, monitor: &neighbours.Monitor{}, started: time.Now()}
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error { // the proxy cannot probe its own address, and does not know the VMs' addresses
		neighbours.Repeat(ctx, log, func(ctx context.Context) error {
			err := errors.Join(server.Ask(), r.monitor.Probe(ctx, append(leasedb.Protected(), leasedb.RecentClients(maxProbedClients)...)))
			r.state(ctx) // logs since when each problem exists
			return err
		})
		return nil
	})
	group.Go(func() error { return daemon.ServeHTTP(ctx, l, r.httpHandler(ctx, registry), log) })
	err = group.Wait()
	log.Info("shutting down")
	return errors.Join(err, shutdown(ctx)) // after the last reply
}

// maxProbedClients limits the clients that are probed.
const maxProbedClients = 32

// listen4 sets up the plugins and opens the sockets.
func (f *flags) listen4(ctx context.Context, c *configuration, log *slog.Logger, registry prometheus.Registerer) (*dhcp4.Server, error) {
	handlers, err := c.handlers()
	if err != nil {
		return nil, err
	}
	return dhcp4.Listen(ctx, dhcp4.Options{
		Listen: c.Server4.Addresses, Handlers: handlers, Limit: f.limit, Drain: f.drain,
		Probers: leasedb.Protected, Pool: leasedb.SharedPool(), Log: log, Registerer: registry,
	})
}

// shutdownTimeout is the time for the plugins to shut down.
const shutdownTimeout = 10 * time.Second

// shutdown stops the plugins: first leasedb, which uses kubevirt.
func shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return errors.Join(leasedb.Shutdown(ctx), kubevirt.Shutdown(ctx))
}
