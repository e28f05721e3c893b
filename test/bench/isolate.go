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

// isolatedMark is set in the environment of a benchmark process in its own network namespace. It needs one because API
// servers reject loopback addresses of endpoints.
const isolatedMark = "OOOI_BENCH_ISOLATED"

// An isolated part of the benchmark runs in its own network namespace.
type isolated struct {
	ranges  []string
	prepare func(context.Context) error
	run     func(context.Context) error
}

func isolatedPart(part string, opts options, out io.Writer) isolated {
	if part == partDHCP {
		return isolated{dhcp.Ranges, dhcp.Prepare, func(ctx context.Context) error {
			return dhcp.Run(ctx, dhcp.Options{
				Rounds: opts.tries, Load: opts.load, Machines: opts.machines, Renewing: opts.renewing, Progress: progress,
			}, out)
		}}
	}
	return isolated{proxy.Ranges, proxy.Prepare, func(ctx context.Context) error {
		return proxy.Run(ctx, proxy.Options{
			Sizes: opts.routes, Changes: opts.changes, Starts: opts.starts, Rounds: opts.rounds, Slice: opts.slice, Settle: opts.settle,
			GoBench: opts.loops, Progress: progress,
		}, out)
	}}
}

// runIsolated prepares a part of the benchmark and runs this program again, in a new network namespace, to measure it.
func runIsolated(ctx context.Context, part string, opts options, out io.Writer) error {
	p := isolatedPart(part, opts, out)
	if os.Getenv(isolatedMark) != "" {
		if err := lab.SetUpNetwork(p.ranges); err != nil {
			return err
		}
		return p.run(ctx)
	}
	progress("%s: building and downloading programs", part)
	if err := p.prepare(ctx); err != nil {
		return err
	}
	// Without root, the network namespace needs a user namespace.
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
