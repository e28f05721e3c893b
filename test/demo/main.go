// Command demo demonstrates oooi with real components. It exits with 0 only if every answer is correct.
//
// With -mode node it starts a management cluster with a node, and the control plane of a hosted cluster. It runs
// kubectl oooi setup there and boots a VM on the VLAN. The VM and a pod then resolve the names and connect by them.
//
// With -mode loopback, for hosts that cannot run a node, it starts an API server with HyperShift's CRDs and two
// hosted clusters, and our daemons as processes. It queries CoreDNS with dig as a VM on each VLAN and as a pod,
// connects through Envoy with curl, and requests an address from coredhcp on a bridge.
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

// options are the flags, and what follows from the environment.
type options struct {
	mode mode

	coredns, xdsd, coredhcp, oooi string // paths of the binaries
	// leftOut is the reason why proxy and DHCP are skipped; nil if they are not.
	leftOut error
	// stay means to keep everything running until the context ends or the user leaves the shell.
	stay bool
}

func main() {
	runtime.LockOSThread() // the kernel kills children when the thread that started them ends (Pdeathsig)
	o := options{mode: auto, stay: interactive()}
	flag.Var(&o.mode, "mode", "where the daemons run: node (in pods), loopback (as processes), or auto (a node if the host can run one)")
	flag.StringVar(&o.coredns, "coredns", "bin/coredns", "path of the coredns binary (make build)")
	flag.StringVar(&o.xdsd, "xdsd", "bin/xdsd", "path of the xdsd binary (make build)")
	flag.StringVar(&o.coredhcp, "coredhcp", "bin/coredhcp", "path of the coredhcp binary (make build)")
	flag.StringVar(&o.oooi, "kubectl-oooi", "bin/kubectl-oooi", "path of the kubectl-oooi binary (make build)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// Writing to a closed output is an error then, and does not end the demo before it has cleaned up. SIGPIPE itself is
	// no reason to end: a connection that its peer has closed also raises it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	err := start(ctx, o, &standardOutput{os.Stdout, stop})
	interrupted := ctx.Err() != nil
	stop()
	var code exitError
	switch {
	case errors.As(err, &code): // the other process has printed the error
		os.Exit(int(code))
	case interrupted && err != nil:
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted; all processes have been stopped")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// start runs the demo in a network namespace of its own. If it cannot create one, it runs on loopback, without proxy
// and DHCP.
func start(ctx context.Context, o options, out io.Writer) error {
	if isolated() {
		if err := lab.SetUpNetwork(o.mode.networks()); err != nil {
			return err
		}
		return run(ctx, o, out)
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
		return fmt.Errorf("creating a network namespace: %w", err)
	default:
		o.leftOut = err
		return run(ctx, o, out)
	}
}

// A standardOutput stops the demo if it cannot be written to, for example because the reader of a pipe has exited.
type standardOutput struct {
	io.Writer
	stop func()
}

func (o *standardOutput) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.stop()
	}
	return n, err
}

// interactive reports whether stdin and stdout are terminals.
func interactive() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// startDeadline limits how long the demo waits for components to start.
const startDeadline = 3 * time.Minute

// checkTools returns an error for a missing program, with the command that installs it.
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
			return fmt.Errorf("%s is missing; install it with: %s", tool, remedy)
		}
	}
	if _, err := findDHClient(); err != nil {
		return errors.New("dhclient is missing; install it with: sudo make deps (Debian's isc-dhcp-client)")
	}
	return nil
}

// run runs the demo in a working directory, which it deletes at the end, and prints to out.
func run(ctx context.Context, o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "oooi-demo-")
	if err != nil {
		return fmt.Errorf("creating the working directory: %w", err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			progress("deleting the working directory: %v", err)
		}
	}()
	if o.mode == onNode {
		return runOnNode(ctx, o, dir, out)
	}
	return runOnLoopback(ctx, o, dir, out)
}

// runOnLoopback runs the demo with the daemons as processes.
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
