// Command demo shows what oooi does, on real components: it starts an API server
// with HyperShift's CRDs, applies two hosted clusters, starts our CoreDNS, and asks
// it, with dig, as a virtual machine on each VLAN and as a pod would. It exits
// with 0 only if every answer was right.
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
	"syscall"
	"time"

	"golang.org/x/term"
)

func main() {
	coredns := flag.String("coredns", "bin/coredns", "the coredns binary, as built by 'make build'")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *coredns, os.Stdout, interactive())
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted; everything it started has ended")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// interactive reports whether a person sits at the terminal.
func interactive() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// startDeadline bounds everything that the demo waits for until it can ask questions.
const startDeadline = 3 * time.Minute

// run shows everything on out. With stay it then keeps running until the context ends.
func run(ctx context.Context, coredns string, out io.Writer, stay bool) error {
	for tool, remedy := range map[string]string{
		"dig":   "sudo make deps (Debian's bind9-dnsutils)",
		coredns: "make build",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing; get it with: %s", tool, remedy)
		}
	}
	dir, err := os.MkdirTemp("", "oooi-demo-")
	if err != nil {
		return fmt.Errorf("making a work folder: %w", err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			progress("removing the work folder: %v", err)
		}
	}()

	startCtx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	c, err := startClusters(startCtx, dir)
	if err != nil {
		return err
	}
	defer func() {
		if err := c.stop(); err != nil {
			progress("stopping the clusters: %v", err)
		}
	}()
	server, err := startCoreDNS(startCtx, coredns, dir, c.management.Kubeconfig(), out)
	if err != nil {
		return err
	}
	defer server.stop()

	t := &transcript{Writer: out, server: server}
	if err := t.show(ctx, c); err != nil {
		return err
	}
	if t.wrong > 0 {
		return fmt.Errorf("%d of %d answers were wrong", t.wrong, t.asked)
	}
	t.printf("\nAll %d answers were right.\n", t.asked)
	if !stay {
		return nil
	}
	t.printf(`
It all runs on until Ctrl-C. Try:

  dig @127.0.0.1 -p %[1]d -b 127.50.0.10 console-openshift-console.apps.demo.lab.example.com
  kubectl --kubeconfig %[2]s get hostedclusters,infras -A
  kubectl --kubeconfig %[2]s -n clusters edit infra demo
`, server.port, c.management.Kubeconfig())
	select {
	case <-ctx.Done():
		t.printf("\nended\n")
		return nil
	case <-server.ended:
		return fmt.Errorf("coredns ended by itself: %w", server.err)
	}
}
