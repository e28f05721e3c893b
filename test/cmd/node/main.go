// Command node runs a node of the lab on a machine of its own, for a control plane on another:
//
//	node -control-plane DIR -name NAME -bridge VLAN [IMAGE ...]
//
// It writes "ready" when Pods can run there, and runs until it is told to end.
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
	runtime.LockOSThread() // the kernel ends children with the thread that started them
	dir := flag.String("control-plane", "", "copy of the control plane's folder, which is called management")
	name := flag.String("name", "node1", "name of the Node")
	bridge := flag.String("bridge", "", "bridge of the VLAN that the node is on")
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
	// The machine is the network.
	inside, yes, _ := strings.Cut(lab.InsideNetwork(), "=")
	if err := os.Setenv(inside, yes); err != nil {
		return err
	}
	// The node's check wants to know that Pods get scheduled, and by whom.
	cp, err := lab.Attach(lab.Config{Name: "management", Dir: dir, ControllerManager: true, Scheduler: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	node, err := lab.StartNode(ctx, cp, lab.NodeConfig{Name: name, Bridges: []string{bridge}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Stop()) }()
	for _, image := range images {
		archive, err := lab.ImageArchive(image)
		if err != nil {
			return err
		}
		if err := node.ImportImage(ctx, archive); err != nil {
			return fmt.Errorf("%w\n%s", err, node.Logs())
		}
	}
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}
