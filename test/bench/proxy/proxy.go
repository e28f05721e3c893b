// Package proxy measures xdsd with the real Envoy against the targets of
// docs/reference/measurements.md: what a change costs xdsd, how soon a connection follows a change in
// a real API server, how long an Envoy takes to start with everything, and how
// Envoy with our configuration does beside HAProxy in the same job.
//
// It runs in a network namespace, in which all addresses of Ranges are its own.
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

// Options say how much is measured.
type Options struct {
	Sizes    []int         // routes in the API server, ascending
	Changes  int           // of each kind, at each size
	Starts   int           // of Envoy, at the largest size
	Rounds   int           // of a comparison; each runs either side once
	Slice    time.Duration // for how long a side runs in a round
	GoBench  string        // -benchtime of the Go benchmarks; empty to leave them out
	Progress func(format string, args ...any)
}

// Ranges are the networks that Run needs: benchmarks' addresses.
var Ranges = []string{"198.18.0.0/15"}

// Prepare builds and fetches what Run takes: there is no way to in a network namespace.
func Prepare(ctx context.Context) error {
	_, noEnvoy := lab.InstallEnvoy(ctx, nil)
	return errors.Join(noEnvoy, measure.Prepare(ctx, "./xdsd", crds...))
}

var crds = []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}

// bench is one run.
type bench struct {
	Options
	*measure.Stage

	envoy  string // the binary
	report report

	// The CPU of the proxies that are compared, and that of who loads them. Without pinning
	// both are nil.
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
	if b.proxyCPU, b.loadCPU, err = measure.Apart(); err != nil {
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

// measure runs the stages: changes at each size, and at the largest the start of Envoy and
// the comparison.
func (b *bench) measure(ctx context.Context) (err error) {
	if err := b.Management.InstallCRDs(ctx, crds...); err != nil {
		return err
	}
	if b.objects, err = newObjects(ctx, b.Management); err != nil {
		return err
	}
	for i, n := range b.Sizes {
		b.Progress("filling the API server: %d Routes with a Service each", n)
		if err := b.objects.grow(ctx, n); err != nil {
			return err
		}
		if err := b.measureSize(ctx, n, i == 0, i == len(b.Sizes)-1); err != nil {
			return fmt.Errorf("with %d routes: %w", n, err)
		}
	}
	return nil
}

// measureSize measures with n routes: changes at every size, the comparison at the first,
// the start at the last.
func (b *bench) measureSize(ctx context.Context, n int, first, last bool) (err error) {
	if b.xdsd, err = b.startXdsd(ctx); err != nil {
		return err
	}
	defer b.xdsd.Stop()
	envoy, err := b.startEnvoy(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = envoy.Stop() }() // it has served its purpose
	if _, err := awaitAll(ctx, envoyAddress, n); err != nil {
		return err
	}
	if err := b.measureChanges(ctx, envoy, n); err != nil {
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
		return b.compareRival(ctx, n)
	}
	return nil
}

// tuneNetwork makes room for the ends of many short connections.
func tuneNetwork() error {
	for name, value := range map[string]string{
		"ip_local_port_range": "1024 65535", "tcp_tw_reuse": "1", "tcp_max_tw_buckets": "8192",
	} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0o600); err != nil {
			return fmt.Errorf("setting up the network: %w", err)
		}
	}
	return nil
}
