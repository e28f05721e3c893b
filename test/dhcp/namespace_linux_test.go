package dhcp_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace, there for as long as the test holds its file open.
type namespace struct {
	file *os.File
}

// newNamespace makes one that ends with the test.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	made := make(chan *os.File)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends in its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- fmt.Errorf("making a network namespace: %w", err)
			return
		}
		file, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			failed <- err
			return
		}
		made <- file
	}()
	select {
	case err := <-failed:
		t.Fatal(err)
		return nil
	case file := <-made:
		n := &namespace{file}
		t.Cleanup(func() {
			if err := file.Close(); err != nil {
				t.Error(err)
			}
		})
		n.run(t, "ip", "link", "set", "lo", "up")
		return n
	}
}

// path is where other processes find the namespace.
func (n *namespace) path() string {
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(n.file.Fd()))
}

// command makes a command in the namespace.
func (n *namespace) command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + n.path()}, args...)...)
}

// run runs a command in the namespace to its end, and returns what it says.
func (n *namespace) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// do calls a function on a thread in the namespace. What the function opens stays there.
func (n *namespace) do(t *testing.T, f func() error) {
	t.Helper()
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked, as above
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			ended <- fmt.Errorf("entering a network namespace: %w", err)
			return
		}
		ended <- f()
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// connect makes a pair of interfaces, one in each namespace; nil is the test's own.
func connect(t *testing.T, a *namespace, nameA string, b *namespace, nameB string) {
	t.Helper()
	run := func(args ...string) {
		if a == nil {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				t.Fatalf("ip %q: %v\n%s", args, err, out)
			}
			return
		}
		a.run(t, append([]string{"ip"}, args...)...)
	}
	run("link", "add", nameA, "type", "veth", "peer", "name", nameB, "netns", b.path())
	run("link", "set", nameA, "up")
	b.run(t, "ip", "link", "set", nameB, "up")
}
