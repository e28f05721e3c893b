// Package proxy measures xdsd with the real Envoy, and compares the results with the targets in
// docs/reference/measurements.md: the cost of a change in xdsd, the delay from a change in a real API server to the
// first connection that follows it, the CPU of an idle proxy, the time that Envoy takes to start with all routes, and connections per second of
// Envoy compared with HAProxy and a minimal Envoy.
//
// It runs in its own network namespace, which has all addresses of Ranges.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// Options configure a run.
type Options struct {
	Sizes    []int         // numbers of routes in the API server, ascending
	Changes  int           // number of changes of each kind, at each size
	Starts   int           // number of starts of Envoy, at the largest size
	Rounds   int           // rounds of each comparison; each measures both sides for one slice
	Slice    time.Duration // duration of a slice
	Settle   time.Duration // unit of the times for which the proxy is idle before and while its CPU is measured
	GoBench  string        // -benchtime of the Go benchmarks; empty to skip them
	Progress func(format string, args ...any)
}

// Ranges are the networks that Run needs. They are reserved for benchmarks (RFC 2544).
var Ranges = []string{"198.18.0.0/15"}

// Prepare builds and downloads what Run needs, which is not possible in a network namespace.
func Prepare(ctx context.Context) error {
	_, envoyErr := lab.InstallEnvoy(ctx, nil)
	return errors.Join(envoyErr, measure.Prepare(ctx, "./xdsd", crds...))
}

var crds = []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}

// bench is one run.
type bench struct {
	Options
	*measure.Stage

	envoy  string // path of the binary
	report report

	// proxyCPU is the CPU of the compared proxies, loadCPU that of the load. Both are nil if only one CPU is available.
	proxyCPU, loadCPU *int

	objects *objects
	backend *backend
	xdsd    *measure.Process
}

// Run measures everything and writes the tables to out.
func Run(ctx context.Context, opts Options, out io.Writer) (err error) {
	if err := measure.Need(haproxy); err != nil {
		return err
	}
	b := &bench{Options: opts, report: report{Options: opts}}
	if b.envoy, err = lab.InstallEnvoy(ctx, opts.Progress); err != nil {
		return err
	}
	if b.proxyCPU, b.loadCPU, err = measure.SeparateCPUs(); err != nil {
		return err
	}
	if err := tuneNetwork(); err != nil {
		return err
	}
	if opts.GoBench != "" {
		if b.report.costs, err = goBenchmarks(ctx, opts); err != nil {
			return err
		}
	}
	if b.backend, err = startBackend(ctx); err != nil {
		return err
	}
	defer b.backend.close()
	if b.Stage, err = measure.NewStage(ctx, "", lab.Config{Logf: opts.Progress}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.measure(ctx); err != nil {
		return err
	}
	_, err = io.WriteString(out, b.report.markdown())
	return err
}

// measure fills the API server to each size and runs measureSize.
func (b *bench) measure(ctx context.Context) (err error) {
	if err := b.Management.InstallCRDs(ctx, crds...); err != nil {
		return err
	}
	if b.objects, err = newObjects(ctx, b.Management); err != nil {
		return err
	}
	for i, n := range b.Sizes {
		b.Progress("filling the API server: %d Routes and Services", n)
		if err := b.objects.grow(ctx, n); err != nil {
			return err
		}
		if err := b.measureSize(ctx, n, i == 0, i == len(b.Sizes)-1); err != nil {
			return fmt.Errorf("with %d routes: %w", n, err)
		}
	}
	return nil
}

// measureSize measures changes with n routes, at the first size also compares Envoy with others, and at the last size
// also measures the start of Envoy.
func (b *bench) measureSize(ctx context.Context, n int, first, last bool) (err error) {
	if b.xdsd, err = b.startXdsd(ctx); err != nil {
		return err
	}
	defer b.xdsd.Stop()
	envoy, err := b.startEnvoy(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = envoy.Stop() }() // for early returns
	if _, err := awaitAll(ctx, envoyAddress, n, ofRoute); err != nil {
		return err
	}
	if err := b.measureChanges(ctx, envoy, n); err != nil {
		return err
	}
	if err := b.measureIdle(ctx, envoy, n); err != nil {
		return err
	}
	if last {
		if err := b.measureStarts(ctx, envoy, n); err != nil {
			return err
		}
	}
	if err := envoy.Stop(); err != nil {
		return err
	}
	if first {
		return b.compareAll(ctx, n)
	}
	return nil
}

// tuneNetwork configures the network namespace for many short connections.
func tuneNetwork() error {
	for name, value := range map[string]string{
		"ip_local_port_range": "1024 65535", "tcp_tw_reuse": "1", "tcp_max_tw_buckets": "8192",
	} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0o600); err != nil {
			return fmt.Errorf("configuring the network: %w", err)
		}
	}
	return nil
}
