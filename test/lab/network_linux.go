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

// runInNetwork runs this binary again, with the same arguments, in a new network
// namespace, and tells whether it ran.
func runInNetwork() (code int, ran bool, err error) {
	// The kernel takes this thread for the parent, with which the child is to die.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, err := startInNetwork(NetworkNamespace(false))
	if err != nil {
		// Who may not may do so as the root of a user namespace.
		var err2 error
		if cmd, err2 = startInNetwork(NetworkNamespace(true)); err2 != nil {
			return 0, false, fmt.Errorf("this needs a network namespace of its own: %w; in a user namespace: %w", err, err2)
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

// NetworkNamespace starts a process in a network namespace of its own: one that root makes,
// or with asUser one that anybody does who becomes root in a namespace of users, too.
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
		return nil, fmt.Errorf("finding this binary: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...) //nolint:noctx // it ends when the tests do
	// Blackhole needs sockets of plain TCP: those of multipath TCP take no filter.
	debug := strings.Trim(os.Getenv("GODEBUG")+",multipathtcp=0", ",")
	cmd.Env = append(os.Environ(), insideNetwork+"=yes", "GODEBUG="+debug)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	err = cmd.Start()
	return cmd, err
}

// SetUpNetwork makes every address of some ranges one of this machine's, as those of
// loopback are, in the network namespace that we are in.
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
				// IPv6 wants an address to be on an interface before it is listened on.
				os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0o600))
		}
		if err != nil {
			return fmt.Errorf("setting up a network namespace: %w", err)
		}
	}
	return nil
}

// digHole has the packets for a network come back to us, who are not meant and say nothing.
func digHole(network string) error { return ip("route", "add", network, "dev", "lo") }

// ip runs that command in the network namespace that we are in.
func ip(args ...string) error { return (*Namespace)(nil).ip(args...) }

// Blackhole has a backend vanish without a word, as a machine that lost its power: the
// kernel drops each packet to it, those of connections that there are and of others. It
// is for tests in a Network.
func (b *Backend) Blackhole(tb testing.TB) {
	tb.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	sockets := []any{b.listener} // first: what is accepted from now on has its filter
	for conn := range b.conns {
		sockets = append(sockets, conn)
	}
	for _, socket := range sockets {
		if err := dropAll(socket); err != nil && !errors.Is(err, net.ErrClosed) {
			tb.Fatalf("cutting off %s: %v", b.name, err)
		}
	}
}

// dropAll attaches a filter to a socket that lets no packet in.
func dropAll(socket any) error {
	conn, ok := socket.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T is no socket", socket)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}} // "keep 0 bytes of it"
	set := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	return errors.Join(set, err)
}
