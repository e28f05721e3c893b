package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// A Network is a network of this machine's own, in which the tests of one package run:
// each of its addresses and ports is free, low ones too, and no packet leaves it. The
// test binary runs itself again in a network namespace:
//
//	var network = lab.Network{
//		Ranges: []string{"198.18.0.0/15", "2001:db8::/32"},
//		Build:  []string{"xdsd"}, Sources: []string{"internal", "xdsd"},
//	}
//
//	func TestMain(m *testing.M) {
//		if code := network.Main(m, &management); code != 0 {
//			os.Exit(code)
//		}
//	}
//
//	func TestSomething(t *testing.T) {
//		network.Need(t)
//		xdsd := exec.Command(network.Binary(t, "xdsd"), "serve")
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
	// Build names binaries of this repository. The method Binary returns their paths.
	Build []string
	// Sources are folders of this repository that the tests test and do not import: see
	// LookAt.
	Sources []string
	// Prepare runs before, in the network of the machine: there is no way to download
	// anything afterwards, but for what the shared control planes take, which Main sees to.
	// Environment variables that it sets are there afterwards, too.
	Prepare func(context.Context) error

	err     error // why there is no network
	look    sync.Once
	lookErr error
}

// Environment variables of the binary that runs in the namespace.
const (
	insideNetwork = "OOOI_LAB_INSIDE_NETWORK"
	binariesDir   = "OOOI_LAB_BINARIES" // where those of Build are
)

// Main is the TestMain of the package, as the function Main is, and returns the code to
// exit with. Where there can be no network namespace, the tests that need it are
// skipped; but not in CI, where it is an error.
func (n *Network) Main(m *testing.M, shared ...*Shared) (code int) {
	if os.Getenv(insideNetwork) == "" {
		remove, err := n.prepare(context.Background(), shared)
		defer remove()
		if err != nil {
			fmt.Fprintln(os.Stderr, "preparing the tests:", err)
			return 1
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

// prepare builds and fetches everything that the tests start. What it built, remove removes.
func (n *Network) prepare(ctx context.Context, shared []*Shared) (remove func(), err error) {
	remove = func() {}
	for _, s := range shared {
		if err := s.prepare(ctx); err != nil {
			return remove, err
		}
	}
	if n.Prepare != nil {
		if err := n.Prepare(ctx); err != nil {
			return remove, err
		}
	}
	if len(n.Build) == 0 {
		return remove, nil
	}
	dir, err := os.MkdirTemp("", "oooi-binaries-")
	if err != nil {
		return remove, err
	}
	remove = func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "removing what was built for the tests:", err)
		}
	}
	// For everybody: some tests run a daemon as nobody.
	err = errors.Join(os.Chmod(dir, 0o755), os.Setenv(binariesDir, dir))
	for _, name := range n.Build {
		err = errors.Join(err, provideOwn(ctx, name, dir))
	}
	return remove, err
}

// provideOwn puts a binary into a folder.
func provideOwn(ctx context.Context, name, dir string) error {
	path, err := ownBinary(ctx, name)
	if err != nil {
		return err
	}
	return install(path, filepath.Join(dir, name))
}

// Need skips a test where there is no network namespace.
func (n *Network) Need(tb testing.TB) {
	tb.Helper()
	if n.err != nil {
		tb.Skip(n.err)
	}
	n.lookAtSources(tb)
}

// Binary returns the path of a binary that Build names.
func (n *Network) Binary(tb testing.TB, name string) string {
	tb.Helper()
	if !slices.Contains(n.Build, name) {
		tb.Fatalf("%s is not among what is built for these tests", name)
	}
	n.lookAtSources(tb)
	return filepath.Join(os.Getenv(binariesDir), name)
}

func (n *Network) lookAtSources(tb testing.TB) {
	tb.Helper()
	n.look.Do(func() { n.lookErr = LookAt(n.Sources...) })
	if n.lookErr != nil {
		tb.Fatal(n.lookErr)
	}
}
