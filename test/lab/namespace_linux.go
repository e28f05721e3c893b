package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Namespace is a network namespace beside ours, as a machine, a Pod or a router has one. It
// is there for as long as its file is open, or a process is in it. Nil is our own.
type Namespace struct{ file *os.File }

// OpenNamespace makes one, which has a loopback interface. The caller closes it.
func OpenNamespace() (*Namespace, error) {
	n := &Namespace{}
	err := elsewhere(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			n.file, err = os.Open(threadNamespace)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	if err := n.ip("link", "set", "lo", "up"); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// NewNamespace makes one that ends with the test.
func NewNamespace(tb testing.TB) *Namespace {
	tb.Helper()
	n, err := OpenNamespace()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Error(err)
		}
	})
	return n
}

// Close ends the namespace, unless a process is in it.
func (n *Namespace) Close() error { return n.file.Close() }

// Path is where other processes find the namespace.
func (n *Namespace) Path() string {
	if n == nil {
		return "/proc/" + strconv.Itoa(os.Getpid()) + "/ns/net"
	}
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(n.file.Fd()))
}

// CommandLine is what runs a command in the namespace. It has our files.
func (n *Namespace) CommandLine(args ...string) []string {
	if n == nil {
		return args
	}
	return slices.Concat([]string{"nsenter", "--net=" + n.Path()}, args)
}

// Command makes a command in the namespace.
func (n *Namespace) Command(ctx context.Context, args ...string) *exec.Cmd {
	line := n.CommandLine(args...)
	return exec.CommandContext(ctx, line[0], line[1:]...)
}

// Run runs a command in the namespace to its end, and returns what it prints.
func (n *Namespace) Run(tb testing.TB, args ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	cmd := n.Command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		tb.Fatalf("%q in a network namespace: %v\n%s%s", args, err, &stdout, &stderr)
	}
	return stdout.String()
}

// ip runs that command in the namespace.
func (n *Namespace) ip(args ...string) error {
	line := n.CommandLine(append([]string{"ip"}, args...)...)
	cmd := exec.Command(line[0], line[1:]...) //nolint:noctx // it takes milliseconds
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(output))
	}
	return nil
}

// Do calls a function on a thread in the namespace. Sockets that it opens stay there;
// goroutines that it starts are in ours.
func (n *Namespace) Do(f func() error) error {
	if n == nil {
		return f()
	}
	return elsewhere(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

// Dial connects from the namespace. The zero address to connect from is any.
func (n *Namespace) Dial(ctx context.Context, from netip.Addr, to netip.AddrPort) (conn net.Conn, err error) {
	err = n.Do(func() error {
		dialer := &net.Dialer{}
		if from.IsValid() {
			dialer.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
		}
		if conn, err = dialer.DialContext(ctx, "tcp", to.String()); err != nil {
			return fmt.Errorf("connecting from a network namespace: %w", err)
		}
		return nil
	})
	return conn, err
}

// Greeting connects from the namespace to a backend, and returns the name that it says at first. The
// zero address to connect from is any.
func (n *Namespace) Greeting(ctx context.Context, from netip.Addr, to netip.AddrPort) (name string, err error) {
	conn, err := n.Dial(ctx, from, to)
	if err != nil {
		return "", err
	}
	name, err = Greeting(ctx, conn)
	_ = conn.Close()
	return name, err
}

// threadNamespace is the one that a thread is in.
const threadNamespace = "/proc/thread-self/ns/net"

// elsewhere calls a function on a thread that may go to another network namespace, and brings
// the thread back: it must not end, since the kernel takes it for the parent of the processes
// that it started, and these may be to die with their parent.
func elsewhere(f func() error) (err error) {
	runtime.LockOSThread()
	here, err := os.Open(threadNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("finding our network namespace: %w", err)
	}
	defer func() {
		back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET)
		if back == nil {
			runtime.UnlockOSThread()
		}
		err = errors.Join(err, back, here.Close())
	}()
	return f()
}

// An End is one of a cable's: an interface.
type End struct {
	In        *Namespace
	Device    string   // its name; empty for any
	MAC       string   // empty for any
	Addresses []string // with the lengths of their prefixes
	// Bridge, where it is not empty, is one of our own network that the interface is plugged
	// into. It is made if it is not there.
	Bridge string
}

// Cable connects two network namespaces, and returns when packets get through. It is gone when
// one of them is.
func Cable(a, b End) error {
	err := a.In.ip(slices.Concat([]string{"link", "add"}, a.words(), []string{"type", "veth", "peer"}, b.words(), []string{"netns", b.In.Path()})...)
	for _, step := range []func(*End) error{(*End).up, (*End).awaitCarrier, (*End).plugIn} {
		for _, end := range []*End{&a, &b} {
			if err == nil {
				err = step(end)
			}
		}
	}
	return err
}

// words are the end's for ip link add.
func (e *End) words() []string {
	if e.Device == "" {
		e.Device = "cable-" + strings.ToLower(rand.Text()[:8])
	}
	words := []string{"name", e.Device}
	if e.MAC != "" {
		words = append(words, "address", e.MAC)
	}
	return words
}

// up gives the interface its addresses.
func (e *End) up() error {
	for _, address := range e.Addresses {
		// Nobody else has it, so that it need not wait until that was looked into.
		if err := e.In.ip("address", "add", address, "dev", e.Device, "nodad"); err != nil {
			return err
		}
	}
	return e.In.ip("link", "set", e.Device, "up")
}

// awaitCarrier waits until the kernel has taken note that the other end is up, too. Until then
// it drops packets; and so does a bridge for some time if it has to be told later.
func (e *End) awaitCarrier() error {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var device *net.Interface
		err := e.In.Do(func() (err error) {
			device, err = net.InterfaceByName(e.Device)
			return err
		})
		if err != nil {
			return fmt.Errorf("laying a cable: %w", err)
		}
		if device.Flags&net.FlagRunning != 0 {
			return nil
		}
	}
	return fmt.Errorf("laying a cable: interface %s has no carrier after %s", e.Device, startTimeout)
}

// plugIn connects the interface to its bridge.
func (e *End) plugIn() error {
	if e.Bridge == "" {
		return nil
	}
	if _, err := makeBridge(e.Bridge); err != nil {
		return err
	}
	return e.In.ip("link", "set", e.Device, "master", e.Bridge)
}
