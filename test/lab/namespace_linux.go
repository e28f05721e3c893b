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

// A Namespace is a network namespace that stands for a machine, a Pod or a router. It exists while its file
// is open or a process is in it. A nil Namespace is this process's namespace.
type Namespace struct{ file *os.File }

// The main thread stays in this process's network, because /proc/PID/ns/net is the namespace of that thread.
// Only the main goroutine runs on it, which uses namespaces alone.
func init() { runtime.LockOSThread() }

// OpenNamespace creates a network namespace whose loopback interface is up. The caller closes it.
func OpenNamespace() (*Namespace, error) {
	n := &Namespace{}
	err := restoringNamespace(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			n.file, err = os.Open(threadNamespace)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("creating a network namespace: %w", err)
	}
	if err := n.ip("link", "set", "lo", "up"); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// NewNamespace creates a network namespace that is closed when the test ends.
func NewNamespace(tb testing.TB) *Namespace {
	tb.Helper()
	n, err := OpenNamespace()
	Must(tb, err)
	tb.Cleanup(func() {
		Report(tb, n.Close())
	})
	return n
}

// Close removes the namespace, unless a process is in it.
func (n *Namespace) Close() error { return n.file.Close() }

// Path returns the path at which other processes can open the namespace.
func (n *Namespace) Path() string {
	if n == nil {
		return "/proc/" + strconv.Itoa(os.Getpid()) + "/ns/net"
	}
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(n.file.Fd()))
}

// CommandLine returns a command line that runs args in the namespace, with the mounts of this process.
func (n *Namespace) CommandLine(args ...string) []string {
	if n == nil {
		return args
	}
	return slices.Concat([]string{"nsenter", "--net=" + n.Path()}, args)
}

// Command returns a command that runs args in the namespace.
func (n *Namespace) Command(ctx context.Context, args ...string) *exec.Cmd {
	line := n.CommandLine(args...)
	return exec.CommandContext(ctx, line[0], line[1:]...)
}

// Run runs a command in the namespace and returns its standard output. The test fails if the command does.
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

// ip runs the command ip in the namespace.
func (n *Namespace) ip(args ...string) error {
	line := n.CommandLine(append([]string{"ip"}, args...)...)
	cmd := exec.Command(line[0], line[1:]...) //nolint:noctx // the command takes milliseconds
	return runCommand(cmd)
}

// Do calls f on a thread in the namespace. Sockets that f opens stay in the namespace; goroutines that it
// starts run in the namespace of this process.
func (n *Namespace) Do(f func() error) error {
	if n == nil {
		return f()
	}
	return restoringNamespace(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

// Dial opens a TCP connection from the namespace. If from is the zero value, the kernel selects the source
// address.
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

// Greeting connects to a backend from the namespace and returns the backend's name. If from is the zero
// value, the kernel selects the source address.
func (n *Namespace) Greeting(ctx context.Context, from netip.Addr, to netip.AddrPort) (name string, err error) {
	conn, err := n.Dial(ctx, from, to)
	if err != nil {
		return "", err
	}
	name, err = Greeting(ctx, conn)
	_ = conn.Close()
	return name, err
}

// threadNamespace is the network namespace of the calling thread.
const threadNamespace = "/proc/thread-self/ns/net"

// restoringNamespace locks the OS thread, calls f, which may change the thread's network namespace, and
// restores it. The thread must not exit: the kernel considers it the parent of the processes that it started,
// and some of those are killed when their parent exits (PR_SET_PDEATHSIG).
func restoringNamespace(f func() error) (err error) {
	runtime.LockOSThread()
	previous, err := os.Open(threadNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("finding the process's network namespace: %w", err)
	}
	defer func() {
		restored := unix.Setns(int(previous.Fd()), unix.CLONE_NEWNET)
		if restored == nil {
			runtime.UnlockOSThread()
		}
		err = errors.Join(err, restored, previous.Close())
	}()
	return f()
}

// An End is an interface at one end of a cable.
type End struct {
	In        *Namespace
	Device    string   // name; empty for a random one
	MAC       string   // empty for a random one
	Addresses []string // with prefix lengths
	// Bridge, if not empty, is a bridge of this process's network to which the interface is attached. It is
	// created if it does not exist.
	Bridge string
}

// Cable connects two network namespaces by a veth pair, and returns when it forwards packets. It is removed
// with either namespace.
func Cable(a, b End) error {
	err := a.In.ip(slices.Concat([]string{"link", "add"}, a.linkArgs(), []string{"type", "veth", "peer"}, b.linkArgs(), []string{"netns", b.In.Path()})...)
	for _, step := range []func(*End) error{(*End).configure, (*End).awaitCarrier, (*End).attachToBridge} {
		for _, end := range []*End{&a, &b} {
			if err == nil {
				err = step(end)
			}
		}
	}
	return err
}

// linkArgs returns the arguments of ip link add for the interface.
func (e *End) linkArgs() []string {
	if e.Device == "" {
		e.Device = "cable-" + strings.ToLower(rand.Text()[:8])
	}
	linkArgs := []string{"name", e.Device}
	if e.MAC != "" {
		linkArgs = append(linkArgs, "address", e.MAC)
	}
	return linkArgs
}

// configure sets the interface's addresses and sets the interface up.
func (e *End) configure() error {
	for _, address := range e.Addresses {
		// Duplicate address detection would only delay the use of the address, which is unique.
		if err := e.In.ip("address", "add", address, "dev", e.Device, "nodad"); err != nil {
			return err
		}
	}
	return e.In.ip("link", "set", e.Device, "up")
}

// awaitCarrier waits until the kernel reports that the other end is up, too. Before that it drops packets,
// and a bridge whose port gets its carrier later does so for some time.
func (e *End) awaitCarrier() error {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var device *net.Interface
		err := e.In.Do(func() (err error) {
			device, err = net.InterfaceByName(e.Device)
			return err
		})
		if err != nil {
			return fmt.Errorf("creating a cable: %w", err)
		}
		if device.Flags&net.FlagRunning != 0 {
			return nil
		}
	}
	return fmt.Errorf("creating a cable: interface %s has no carrier after %s", e.Device, startTimeout)
}

// attachToBridge attaches the interface to its bridge.
func (e *End) attachToBridge() error {
	if e.Bridge == "" {
		return nil
	}
	if _, err := makeBridge(e.Bridge); err != nil {
		return err
	}
	return e.In.ip("link", "set", e.Device, "master", e.Bridge)
}
