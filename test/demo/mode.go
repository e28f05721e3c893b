package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/densityops/oooi/test/lab"
)

// A mode is where our daemons run. It is a flag.Value.
type mode string

const (
	onNode     mode = "node"     // in pods
	onLoopback mode = "loopback" // as processes
	auto       mode = "auto"     // onNode if the host meets the requirements, else onLoopback
)

// String implements flag.Value.
func (m *mode) String() string { return string(*m) }

// Set implements flag.Value.
func (m *mode) Set(text string) error {
	if !slices.Contains([]mode{onNode, onLoopback, auto}, mode(text)) {
		return errors.New("want node, loopback or auto")
	}
	*m = mode(text)
	return nil
}

// networks returns the networks whose addresses are all local in the demo's network namespace, as those of
// 127.0.0.0/8 are. Pods, and servers that simulate pods, use addresses of these.
func (m *mode) networks() []string {
	if *m == onNode {
		return []string{"192.0.2.0/24"}
	}
	return []string{"198.51.100.0/24", "192.168.50.200/29"} // pods, MetalLB's pool
}

// demoCommands returns the commands that the demo needs in node mode, in addition to those of a node.
func demoCommands() []string {
	return []string{"bash", "curl", "dig", "dhclient", "ldd", "sleep", "unshare"}
}

// remedy tells how to install the requirements of a node.
const remedy = "install commands and plugins with 'sudo make demo-deps'"

// choose replaces auto by the mode that the host can run. In CI as root, where the node must be tested, auto is an
// error if requirements are missing.
func (m *mode) choose() error {
	missing := lab.NodeMissing(demoCommands()...)
	switch {
	case *m == onLoopback:
	case len(missing) == 0:
		*m = onNode
	case *m == onNode || os.Getenv("CI") != "" && os.Geteuid() == 0:
		return fmt.Errorf("cannot run a node; missing: %s; %s", strings.Join(missing, ", "), remedy)
	default:
		progress("cannot run a node, so the daemons run as processes on loopback; missing: %s; %s", strings.Join(missing, ", "), remedy)
		*m = onLoopback
	}
	return nil
}
