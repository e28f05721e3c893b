package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/densityops/oooi/test/bench/dhcp"
	"github.com/densityops/oooi/test/bench/proxy"
	"github.com/densityops/oooi/test/lab"
)

// isolatedMark is in the environment of a benchmark that runs in a network namespace of
// its own: API servers take no loopback addresses for endpoints.
const isolatedMark = "OOOI_BENCH_ISOLATED"

// runIsolated measures a part in a network namespace.
func runIsolated(ctx context.Context, part string, opts options, out io.Writer) error {
	if os.Getenv(isolatedMark) == "" {
		return isolate(ctx, part)
	}
	if part == partDHCP {
		if err := lab.SetUpNetwork(dhcp.Ranges); err != nil {
			return err
		}
		return dhcp.Run(ctx, dhcp.Options{
			Rounds: opts.tries, Load: opts.load, Machines: opts.machines, Renewing: opts.renewing, Progress: progress,
		}, out)
	}
	if err := lab.SetUpNetwork(proxy.Ranges); err != nil {
		return err
	}
	return proxy.Run(ctx, proxy.Options{
		Sizes: opts.routes, Changes: opts.changes, Starts: opts.starts, Rounds: opts.rounds, Slice: opts.slice,
		GoBench: opts.loops, Progress: progress,
	}, out)
}

// prepare builds and fetches what a part needs.
func prepare(ctx context.Context, part, dir string) error {
	if part == partDHCP {
		if err := dhcp.Missing(); err != nil {
			return err
		}
		progress("building coredhcp")
		return dhcp.Prepare(ctx, dir)
	}
	progress("building xdsd, and fetching Envoy if need be")
	return proxy.Prepare(ctx, dir)
}

// isolate prepares what a part needs, and runs this program again for it.
func isolate(ctx context.Context, part string) error {
	dir, err := os.MkdirTemp("", "oooi-bench-")
	if err != nil {
		return fmt.Errorf("making a work folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // binaries, which can be had again
	if err := prepare(ctx, part, dir); err != nil {
		return err
	}
	// Who may not make a network namespace may do so as the root of a user namespace.
	asUser := os.Geteuid() != 0
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(os.Args[1:], "-part", part)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), isolatedMark+"=yes")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = lab.NetworkNamespace(asUser)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("measuring in a network namespace: %w", err)
	}
	return nil
}
