// Command node runs a node of the lab in a virtual machine, for a control plane outside of it:
//
//	node -control-plane DIR -name NAME -bridge VLAN [IMAGE ...]
//
// It prints "ready" when pods can run on the node, and runs until it receives SIGINT or SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/densityops/oooi/test/lab"
)

func main() {
	runtime.LockOSThread() // the kernel kills children when the thread that started them ends (Pdeathsig)
	dir := flag.String("control-plane", "", "copy of the directory of the control plane \"management\"")
	name := flag.String("name", "node1", "name of the Node")
	bridge := flag.String("bridge", "", "bridge of the node's VLAN")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *dir, *name, *bridge, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, name, bridge string, images []string) (err error) {
	// The virtual machine has a separate network, so that the lab needs no network namespace.
	variable, value, _ := strings.Cut(lab.InsideNetwork(), "=")
	if err := os.Setenv(variable, value); err != nil {
		return err
	}
	// StartNode checks that the control plane schedules pods, so this one must have the same components.
	cp, err := lab.Attach(lab.Config{Name: "management", Dir: dir, ControllerManager: true, Scheduler: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	node, err := lab.StartNode(ctx, cp, lab.NodeConfig{Name: name, Bridges: []string{bridge}, Images: images})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Stop()) }()
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}
