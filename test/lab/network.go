package lab

import (
	"fmt"
	"os"
	"testing"
)

// A Network is a network of this machine's own, in which the tests of one package run:
// each of its addresses and ports is free, low ones too, and no packet leaves it. The
// test binary runs itself again in a network namespace:
//
//	var network = lab.Network{Ranges: []string{"198.18.0.0/15", "2001:db8::/32"}}
//
//	func TestMain(m *testing.M) {
//		if code := network.Main(m, &management); code != 0 {
//			os.Exit(code)
//		}
//	}
//
//	func TestSomething(t *testing.T) {
//		network.Need(t)
//		...
//	}
//
// API servers take no loopback addresses for endpoints; they do take these.
type Network struct {
	// Ranges are networks of which every address can be listened on, beside loopback.
	Ranges []string
	// Holes are networks (IPv4) in which every packet is lost without a word, as behind a
	// firewall.
	Holes []string
	// Prepare runs before, in the network of the machine: there is no way to download
	// anything afterwards. Environment variables that it sets are there afterwards, too.
	Prepare func() error

	err error // why there is no network
}

// insideNetwork is an environment variable of the binary that runs in the namespace.
const insideNetwork = "OOOI_LAB_INSIDE_NETWORK"

// Main is the TestMain of the package, as the function Main is, and returns the code to
// exit with. Where there can be no network namespace, the tests that need it are
// skipped; but not in CI, where it is an error.
func (n *Network) Main(m *testing.M, shared ...*Shared) (code int) {
	if os.Getenv(insideNetwork) == "" {
		if n.Prepare != nil {
			if err := n.Prepare(); err != nil {
				fmt.Fprintln(os.Stderr, "preparing the tests:", err)
				return 1
			}
		}
		var ran bool
		if code, ran, n.err = runInNetwork(); ran {
			return code
		}
	} else {
		n.err = SetUpNetwork(n.Ranges)
		for _, hole := range n.Holes {
			if n.err == nil {
				n.err = digHole(hole)
			}
		}
	}
	if n.err != nil && os.Getenv("CI") != "" {
		fmt.Fprintln(os.Stderr, n.err)
		return 1
	}
	Main(m, shared...)
	return 0 // what the tests made of it, the testing package knows
}

// Need skips a test where there is no network namespace.
func (n *Network) Need(tb testing.TB) {
	tb.Helper()
	if n.err != nil {
		tb.Skip(n.err)
	}
}
