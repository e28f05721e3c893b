package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// runInNetwork runs this binary again with the same arguments in a new network namespace. ran reports whether
// it could be started.
func runInNetwork() (code int, ran bool, err error) {
	// The kernel considers this thread the parent; the child is killed if the thread exits.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, err := startInNetwork(NetworkNamespace(false))
	if err != nil {
		// Without root, try as root of a new user namespace.
		var userErr error
		if cmd, userErr = startInNetwork(NetworkNamespace(true)); userErr != nil {
			return 0, false, fmt.Errorf("creating a network namespace: %w; with a user namespace: %w", err, userErr)
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, true, nil
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), true, nil
	default:
		fmt.Fprintln(os.Stderr, "the tests in a network namespace:", err)
		return 1, true, nil
	}
}

// NetworkNamespace returns the attributes of a process in a new network namespace. With asUser the process is
// also root of a new user namespace, which needs no privileges.
func NetworkNamespace(asUser bool) *syscall.SysProcAttr {
	if !asUser {
		return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
}

func startInNetwork(attributes *syscall.SysProcAttr) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the path of this binary: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...) //nolint:noctx // the process ends with the tests
	// Blackhole needs plain TCP sockets; sockets of multipath TCP accept no filter.
	debug := strings.Trim(os.Getenv("GODEBUG")+",multipathtcp=0", ",")
	cmd.Env = append(os.Environ(), insideNetwork+"=yes", "GODEBUG="+debug)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	err = cmd.Start()
	return cmd, err
}

// SetUpNetwork makes all addresses of ranges local in this process's network namespace, like the addresses of
// loopback.
func SetUpNetwork(ranges []string) error {
	if err := ip("link", "set", "lo", "up"); err != nil {
		return err
	}
	for _, text := range ranges {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("setting up a network namespace: %w", err)
		}
		if prefix.Addr().Is4() {
			err = ip("route", "add", "local", text, "dev", "lo")
		} else {
			err = errors.Join(ip("-6", "route", "add", "local", text, "dev", "lo"),
				// By default an IPv6 socket can only be bound to an address of an interface.
				os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0o600))
		}
		if err != nil {
			return fmt.Errorf("setting up a network namespace: %w", err)
		}
	}
	return nil
}

// addBlackhole routes a prefix to loopback, where its packets are neither local nor forwarded, and dropped
// without a reply.
func addBlackhole(network string) error { return ip("route", "add", network, "dev", "lo") }

// ip runs the command ip in this process's network namespace.
func ip(args ...string) error { return (*Namespace)(nil).ip(args...) }

// Blackhole makes a backend unreachable, like a host that lost its power: the kernel drops all packets to it,
// of existing and new connections. The test must run in a Network.
func (b *Backend) Blackhole(tb testing.TB) {
	tb.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	sockets := []any{b.listener} // first, because accepted sockets inherit the filter
	for conn := range b.conns {
		sockets = append(sockets, conn)
	}
	for _, socket := range sockets {
		if err := dropAll(socket); err != nil && !errors.Is(err, net.ErrClosed) {
			tb.Fatalf("dropping packets to %s: %v", b.name, err)
		}
	}
}

// dropAll attaches a filter to a socket that drops all packets.
func dropAll(socket any) error {
	conn, ok := socket.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T is not a socket", socket)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}} // "accept 0 bytes of the packet"
	set := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	return errors.Join(set, err)
}
