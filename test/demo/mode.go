package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/densityops/oooi/test/lab"
)

// mode says where our daemons run. It is a flag.
type mode string

const (
	onNode     mode = "node"     // in pods
	onLoopback mode = "loopback" // as processes
	auto       mode = "auto"     // the first of these that this machine has the means for
)

// String is flag.Value's.
func (m *mode) String() string { return string(*m) }

// Set is flag.Value's.
func (m *mode) Set(text string) error {
	if !slices.Contains([]mode{onNode, onLoopback, auto}, mode(text)) {
		return errors.New("want node, loopback or auto")
	}
	*m = mode(text)
	return nil
}

// networks are those of which all addresses are local in the demo's network namespace, as those
// of 127.0.0.0/8 are everywhere. Pods, and those who stand in for some, have addresses there.
func (m *mode) networks() []string {
	if *m == onNode {
		return []string{"192.0.2.0/24"}
	}
	return []string{"198.51.100.0/24", "192.168.50.200/29"} // of pods, and MetalLB's pool
}

// demoCommands are what the demo runs on a node, beside what that takes itself.
func demoCommands() []string {
	return []string{"bash", "curl", "dig", "dhclient", "ldd", "sleep", "unshare"}
}

// remedy is how to get what a node takes.
const remedy = "install commands and plugins with 'sudo make demo-deps'"

// choose puts a mode in the place of auto. In CI, root gets what is to be tested there.
func (m *mode) choose() error {
	missing := lab.NodeMissing(demoCommands()...)
	switch {
	case *m == onLoopback:
	case len(missing) == 0:
		*m = onNode
	case *m == onNode || os.Getenv("CI") != "" && os.Geteuid() == 0:
		return fmt.Errorf("there can be no node here; missing: %s; %s", strings.Join(missing, ", "), remedy)
	default:
		progress("there can be no node here, so that what would be in pods runs as processes, on loopback; missing: %s; %s", strings.Join(missing, ", "), remedy)
		*m = onLoopback
	}
	return nil
}
