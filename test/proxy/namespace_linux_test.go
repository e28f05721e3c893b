package proxy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/test/lab"
)

// A namespace is a network namespace beside ours, as a pod or a router has it. A
// process holds it, which ends with the test.
type namespace struct{ holder int }

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("unshare", "--net", "sleep", "infinity")
	lab.NewDaemon(t, "the holder of a network namespace", func() *exec.Cmd { return holder }).Start(t)
	n := &namespace{holder.Process.Pid}
	poll(t, "a network namespace", func() bool {
		theirs, err := os.Readlink(n.path())
		return err == nil && theirs != ours
	})
	n.ip(t, "link set up dev lo")
	return n
}

func (n *namespace) path() string { return fmt.Sprintf("/proc/%d/ns/net", n.holder) }

// ip runs the ip command inside.
func (n *namespace) ip(t *testing.T, format string, args ...any) {
	t.Helper()
	n.run(t, append([]string{"ip"}, strings.Fields(fmt.Sprintf(format, args...))...)...)
}

func (n *namespace) run(t *testing.T, command ...string) {
	t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=" + n.path()}, command...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
}

// plug is an end of a cable.
type plug struct {
	in        *namespace
	device    string
	addresses []string // with their prefixes
}

// cable connects two namespaces.
func cable(t *testing.T, a, b plug) {
	t.Helper()
	a.in.ip(t, "link add %s type veth peer name %s netns %d", a.device, b.device, b.in.holder)
	for _, p := range []plug{a, b} {
		for _, address := range p.addresses {
			p.in.ip(t, "address add %s dev %s nodad", address, p.device)
		}
		p.in.ip(t, "link set up dev %s", p.device)
	}
}

// forward has it pass on what is not for itself, as a router does.
func (n *namespace) forward(t *testing.T) {
	t.Helper()
	n.run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward && echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
}

// do calls a function whose sockets are of the namespace, if it opens them before it
// goes on in other goroutines.
func (n *namespace) do(t *testing.T, f func()) {
	t.Helper()
	theirs, err := os.Open(n.path())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = theirs.Close() }()
	runtime.LockOSThread()
	ours, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setns(int(ours.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Fatal(err) // the thread stays locked, and ends with the test's goroutine
		}
		runtime.UnlockOSThread()
	}()
	f()
}

// inside has an Envoy start in the namespace. Files, and with them Unix sockets, it
// shares with us.
func (n *namespace) inside(t *testing.T, config lab.EnvoyConfig) lab.EnvoyConfig {
	t.Helper()
	binary, err := lab.FindEnvoy(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	config.Binary = filepath.Join(t.TempDir(), "envoy")
	script := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=%s %q \"$@\"\n", n.path(), binary)
	if err := os.WriteFile(config.Binary, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return config
}
