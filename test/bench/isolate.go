package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/densityops/oooi/test/bench/proxy"
	"github.com/densityops/oooi/test/lab"
)

// isolatedMark is in the environment of a benchmark that runs in a network namespace of
// its own: API servers take no loopback addresses for endpoints.
const isolatedMark = "OOOI_BENCH_ISOLATED"

// runProxy measures xdsd, in a network namespace.
func runProxy(ctx context.Context, opts options, out io.Writer) error {
	if os.Getenv(isolatedMark) == "" {
		return isolate(ctx)
	}
	if err := lab.SetUpNetwork(proxy.Ranges); err != nil {
		return err
	}
	return proxy.Run(ctx, proxy.Options{
		Sizes: opts.routes, Changes: opts.changes, Starts: opts.starts, Rounds: opts.rounds, Slice: opts.slice,
		GoBench: opts.loops, Progress: progress,
	}, out)
}

// isolate prepares what the part needs, and runs this program again for it.
func isolate(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "oooi-bench-")
	if err != nil {
		return fmt.Errorf("making a work folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // binaries, which can be had again
	progress("building xdsd, and fetching Envoy if need be")
	if err := proxy.Prepare(ctx, dir); err != nil {
		return err
	}
	// Who may not make a network namespace may do so as the root of a user namespace.
	asUser := os.Geteuid() != 0
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(os.Args[1:], "-part", partProxy)...)
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
