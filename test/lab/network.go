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

// A Network is an isolated network, in which the tests of one package run. All of its addresses and ports are
// free, including the privileged ones, and no packet leaves it. The test binary runs itself again in a new
// network namespace:
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
// API servers reject loopback addresses as endpoints, but accept addresses of Ranges.
type Network struct {
	// Ranges are prefixes all of whose addresses are local to the network, like loopback's.
	Ranges []string
	// Blackholes are IPv4 prefixes to which every packet is dropped silently, as behind a firewall.
	Blackholes []string
	// Build are the names of binaries of this repository. Binary returns their paths.
	Build []string
	// Sources are directories of this repository that the tests use and do not import: see TrackSources.
	Sources []string
	// Prepare runs before the binary enters the network, where nothing can be downloaded. It must download
	// what the tests need; Main does that for the shared control planes. The binary in the network inherits
	// environment variables that Prepare sets.
	Prepare func(context.Context) error

	err       error // why the network cannot be created
	trackOnce sync.Once
	trackErr  error
}

// Environment variables of the binary that runs in the namespace.
const (
	insideNetwork = "OOOI_LAB_INSIDE_NETWORK"
	binariesDir   = "OOOI_LAB_BINARIES" // directory with the binaries of Build
)

// Main runs the tests of the package, as the function Main does, and returns the exit code. If no network
// namespace can be created, it is an error in CI, and otherwise Need skips the tests.
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
		for _, blackhole := range n.Blackholes {
			if n.err == nil {
				n.err = addBlackhole(blackhole)
			}
		}
	}
	if n.err != nil && os.Getenv("CI") != "" {
		fmt.Fprintln(os.Stderr, n.err)
		return 1
	}
	Main(m, shared...)
	return 0 // m.Run has stored the exit code
}

// prepare builds and downloads everything that the tests start. remove deletes what it built.
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
			fmt.Fprintln(os.Stderr, "removing the binaries:", err)
		}
	}
	// Readable for all users, because some tests run a daemon as an unprivileged user.
	err = errors.Join(os.Chmod(dir, 0o755), os.Setenv(binariesDir, dir))
	for _, name := range n.Build {
		err = errors.Join(err, installOwn(ctx, name, dir))
	}
	return remove, err
}

// installOwn copies a binary of this repository to a folder.
func installOwn(ctx context.Context, name, dir string) error {
	path, err := ownBinary(ctx, name)
	if err != nil {
		return err
	}
	return install(path, filepath.Join(dir, name))
}

// Need skips a test if there is no network namespace.
func (n *Network) Need(tb testing.TB) {
	tb.Helper()
	if n.err != nil {
		tb.Skip(n.err)
	}
	n.trackSources(tb)
}

// Binary returns the path of a binary of Build.
func (n *Network) Binary(tb testing.TB, name string) string {
	tb.Helper()
	if !slices.Contains(n.Build, name) {
		tb.Fatalf("%s is not in Network.Build", name)
	}
	n.trackSources(tb)
	return filepath.Join(os.Getenv(binariesDir), name)
}

func (n *Network) trackSources(tb testing.TB) {
	tb.Helper()
	n.trackOnce.Do(func() { n.trackErr = TrackSources(n.Sources...) })
	if n.trackErr != nil {
		tb.Fatal(n.trackErr)
	}
}
