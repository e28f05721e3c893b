package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

// The server's end of the link is in the network namespace that we are in; the other end,
// with the relay agent's address, is in one of the clients'.
const (
	device        = "vlan0"
	serverAddress = "10.255.0.2"
	relayAddress  = "10.255.0.3"
	prefix        = "/8"
	// What the servers give, as many as leasedb takes.
	network      = "10.0.0.0/8"
	firstAddress = "10.0.0.1"
	lastAddress  = "10.15.255.255"
)

// lan is the clients' network namespace, there while its file is open.
type lan struct {
	file *os.File
}

func newLAN(ctx context.Context) (*lan, error) {
	l := &lan{}
	err := elsewhere(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		var err error
		if l.file, err = os.Open(ownNamespace); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	const peer = "relay0"
	for _, cmd := range []*exec.Cmd{
		exec.CommandContext(ctx, "ip", "link", "add", device, "type", "veth", "peer", "name", peer, "netns", l.path()),
		exec.CommandContext(ctx, "ip", "address", "add", serverAddress+prefix, "dev", device),
		exec.CommandContext(ctx, "ip", "link", "set", device, "up"),
		l.command(ctx, "ip", "address", "add", relayAddress+prefix, "dev", peer),
		l.command(ctx, "ip", "link", "set", peer, "up"),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			l.close()
			return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
	}
	return l, nil
}

// elsewhere calls a function on a thread that may go to another network namespace, and brings
// the thread back: it must not end, since the kernel takes it for the parent of the processes
// that it started, and these are to die with their parent.
func elsewhere(f func() error) (err error) {
	runtime.LockOSThread()
	here, err := os.Open(ownNamespace)
	if err != nil {
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

// ownNamespace is that of a thread.
const ownNamespace = "/proc/thread-self/ns/net"

func (l *lan) close() { _ = l.file.Close() } // the namespace ends with it

// path is where other processes find the namespace.
func (l *lan) path() string {
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(l.file.Fd()))
}

// command makes a command in the namespace.
func (l *lan) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + l.path()}, args...)...)
}

// relay opens a relay agent's socket.
func (l *lan) relay(ctx context.Context) (conn *net.UDPConn, err error) {
	err = elsewhere(func() error {
		if err := unix.Setns(int(l.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		address := net.JoinHostPort(relayAddress, strconv.Itoa(dhcpv4.ServerPort))
		packets, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", address)
		if err != nil {
			return fmt.Errorf("opening a relay agent's socket: %w", err)
		}
		var ok bool
		if conn, ok = packets.(*net.UDPConn); !ok {
			return fmt.Errorf("a UDP socket is a %T", packets)
		}
		const buffer = 4 << 20
		_ = conn.SetReadBuffer(buffer) // what there is will do
		return nil
	})
	return conn, err
}

// startDeadline bounds a server's start, the reading of all machines included.
const startDeadline = time.Minute

// await returns when a server offers the first client an address.
func (l *lan) await(ctx context.Context, p *process) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	conn, err := l.relay(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	const patience = 100 * time.Millisecond
	for ctx.Err() == nil {
		if err := p.alive(); err != nil {
			return fmt.Errorf("%w; it said:\n%s", err, p.said())
		}
		if err := send(conn, client(0).discover()); err != nil {
			return err
		}
		answer, err := receive(conn, time.Now().Add(patience))
		if err != nil {
			return err
		}
		if answer != nil && answer.MessageType() == dhcpv4.MessageTypeOffer {
			return nil
		}
	}
	return fmt.Errorf("waiting for an offer of %s: %w; it said:\n%s", p.name, ctx.Err(), p.said())
}
