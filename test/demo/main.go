// Command demo shows what oooi does, on real components. It exits with 0 only if every
// answer was right.
//
// With -mode node it starts a management cluster with a node, and the control plane of a
// hosted cluster. It runs kubectl oooi setup there, boots a machine on the VLAN, and has that
// and a pod look up names and connect by them.
//
// With -mode loopback, for machines that can run no node, it starts an API server with
// HyperShift's CRDs, applies two hosted clusters, starts our CoreDNS, and asks it, with dig, as
// a virtual machine on each VLAN and as a pod would. Then it starts xdsd with Envoy, and
// connects through that with curl; and coredhcp, of which a machine on a bridge gets its
// address.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/densityops/oooi/test/lab"
)

// options say what to show.
type options struct {
	mode mode

	coredns, xdsd, coredhcp, oooi string // the binaries
	// leftOut says why proxy and DHCP cannot be shown here; nil where they can.
	leftOut error
	// stay: keep running until the context ends, or the person at the terminal has enough.
	stay bool
}

func main() {
	runtime.LockOSThread() // the kernel ends children with the thread that started them
	o := options{mode: auto, stay: interactive()}
	flag.Var(&o.mode, "mode", "where everything runs: node (in pods), loopback (as processes), or auto (a node where there can be one)")
	flag.StringVar(&o.coredns, "coredns", "bin/coredns", "the coredns binary, as built by 'make build'")
	flag.StringVar(&o.xdsd, "xdsd", "bin/xdsd", "the xdsd binary, as built by 'make build'")
	flag.StringVar(&o.coredhcp, "coredhcp", "bin/coredhcp", "the coredhcp binary, as built by 'make build'")
	flag.StringVar(&o.oooi, "kubectl-oooi", "bin/kubectl-oooi", "the kubectl-oooi binary, as built by 'make build'")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := start(ctx, o)
	interrupted := ctx.Err() != nil
	stop()
	var code exitError
	switch {
	case errors.As(err, &code): // it has said why
		os.Exit(int(code))
	case interrupted && err != nil:
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted; everything it started has ended")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// start runs the demo in a network namespace of its own; on loopback without proxy and DHCP
// where it cannot have one.
func start(ctx context.Context, o options) error {
	if isolated() {
		if err := lab.SetUpNetwork(o.mode.networks()); err != nil {
			return err
		}
		return run(ctx, o, os.Stdout)
	}
	if err := o.mode.choose(); err != nil {
		return err
	}
	if err := checkTools(o); err != nil {
		return err
	}
	asUser, err := possible(ctx)
	switch {
	case err == nil:
		return isolate(ctx, o, asUser)
	case o.mode == onNode:
		return fmt.Errorf("making a network namespace: %w", err)
	default:
		o.leftOut = err
		return run(ctx, o, os.Stdout)
	}
}

// interactive reports whether a person sits at the terminal.
func interactive() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// startDeadline bounds everything that the demo waits for until it can ask questions.
const startDeadline = 3 * time.Minute

// checkTools says what is missing.
func checkTools(o options) error {
	for tool, remedy := range map[string]string{
		"dig":      "sudo make deps (Debian's bind9-dnsutils)",
		"curl":     "sudo make deps",
		"ip":       "sudo make deps (Debian's iproute2)",
		o.coredns:  "make build",
		o.xdsd:     "make build",
		o.coredhcp: "make build",
		o.oooi:     "make build",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing; get it with: %s", tool, remedy)
		}
	}
	if _, err := findDHClient(); err != nil {
		return errors.New("dhclient is missing; get it with: sudo make deps (Debian's isc-dhcp-client)")
	}
	return nil
}

// run shows everything on out.
func run(ctx context.Context, o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "oooi-demo-")
	if err != nil {
		return fmt.Errorf("making a work folder: %w", err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			progress("removing the work folder: %v", err)
		}
	}()
	if o.mode == onNode {
		return runOnNode(ctx, o, dir, out)
	}
	return runOnLoopback(ctx, o, dir, out)
}

// runOnLoopback shows daemons that run as processes.
func runOnLoopback(ctx context.Context, o options, dir string, out io.Writer) error {
	startCtx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	c, err := startClusters(startCtx, dir, o.leftOut == nil)
	if err != nil {
		return err
	}
	defer func() {
		if err := c.stop(); err != nil {
			progress("stopping the clusters: %v", err)
		}
	}()
	n := &network{left: o.leftOut}
	defer n.stop()
	if n.left == nil {
		n.vlan, n.left = newVLAN(startCtx, dir)
	}
	t := &transcript{Writer: out}
	reader, err := c.management.UserKubeconfig("coredns")
	if err != nil {
		return err
	}
	control, err := t.startControl(startCtx, c, dir, o.xdsd)
	if err != nil {
		return err
	}
	defer control.stop()
	if t.server, err = startCoreDNS(startCtx, o.coredns, dir, reader, n.vlan, out); err != nil {
		return err
	}
	defer t.server.stop()
	if err := t.show(ctx, c); err != nil {
		return err
	}
	if o.leftOut != nil {
		t.printf(withoutNetwork, o.leftOut)
	} else if err := t.showNetwork(ctx, c, n, dir, o); err != nil {
		return err
	}
	if err := t.sum(); err != nil || !o.stay {
		return err
	}
	return t.stay(ctx, c, n)
}
