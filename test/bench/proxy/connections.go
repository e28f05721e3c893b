package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
)

// connectionDeadline limits one connection.
const connectionDeadline = 10 * time.Second

// A backend accepts connections at all addresses, and replies to a client's first bytes with the address. It does not
// use TLS: neither proxy terminates it, and the ends of a connection would take CPU time from both.
type backend struct {
	listener net.Listener
	done     sync.WaitGroup
}

func startBackend(ctx context.Context) (*backend, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", ":"+strconv.Itoa(backendPort))
	if err != nil {
		return nil, fmt.Errorf("starting the backend: %w", err)
	}
	b := &backend{listener: l}
	b.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.done.Go(func() { greet(conn) })
		}
	})
	return b, nil
}

// greet waits for the client's first bytes, sends the connection's local address, and closes the connection after the
// client has.
func greet(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(connectionDeadline)); err != nil {
		return
	}
	var buffer [2048]byte
	if _, err := conn.Read(buffer[:]); err != nil { // a health check, which sends nothing
		return
	}
	address, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return
	}
	if _, err := conn.Write(append(address.AddrPort().Addr().Unmap().AppendTo(nil), '\n')); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// close stops accepting connections, and waits until all clients have closed theirs.
func (b *backend) close() {
	_ = b.listener.Close()
	b.done.Wait()
}

// clientHello returns the ClientHello of Go's TLS client for a host.
func clientHello(host string) ([]byte, error) {
	c := &capture{}
	_ = tls.Client(c, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}).Handshake() //nolint:noctx // it ends with the first write
	if c.first == nil {
		return nil, fmt.Errorf("no ClientHello for %s", host)
	}
	return c.first, nil
}

// A capture is a connection that keeps the first written bytes. All writes fail.
type capture struct {
	net.Conn
	first []byte
}

func (c *capture) Write(p []byte) (int, error) {
	if c.first == nil {
		c.first = bytes.Clone(p)
	}
	return 0, errors.New("captured")
}

// connect connects to a proxy, sends a ClientHello, and returns the address of the endpoint that replies.
func connect(ctx context.Context, address string, hello []byte) (endpoint netip.Addr, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", address)
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(connectionDeadline)); err != nil {
		return netip.Addr{}, err
	}
	if _, err := conn.Write(hello); err != nil {
		return netip.Addr{}, err
	}
	var buffer [64]byte
	n := 0
	for n < len(buffer) && !bytes.HasSuffix(buffer[:n], []byte("\n")) {
		m, err := conn.Read(buffer[n:])
		if err != nil {
			return netip.Addr{}, err
		}
		n += m
	}
	return netip.ParseAddr(string(bytes.TrimSpace(buffer[:n])))
}

// expect connects to a proxy and returns an error unless the endpoint want replies.
func expect(ctx context.Context, address string, hello []byte, want netip.Addr) error {
	got, err := connect(ctx, address, hello)
	if err == nil && got != want {
		err = fmt.Errorf("reply from endpoint %s, want %s", got, want)
	}
	return err
}

func port443(host string) string { return net.JoinHostPort(host, "443") }

// awaitAll waits until each of the first n routes works. It tries them one after the other, and returns the time at
// which the last one that it had to wait for worked.
func awaitAll(ctx context.Context, host string, n int, endpoint func(route) netip.Addr) (since time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeDeadline)
	defer cancel()
	since = time.Now()
	for i := n - 1; i >= 0; i-- {
		r, waited := route(i), false
		h, err := clientHello(r.host())
		if err != nil {
			return since, err
		}
		err = retry(ctx, pollPause, func() error {
			err := expect(ctx, port443(host), h, endpoint(r))
			waited = waited || err != nil
			return err
		})
		if err != nil {
			return since, fmt.Errorf("connecting to %s at %s: %w", r.host(), host, err)
		}
		if waited {
			since = time.Now()
		}
	}
	return since, nil
}

// retry repeats try until it succeeds or the context ends, and returns the last error.
func retry(ctx context.Context, pause time.Duration, try func() error) error {
	for {
		err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		measure.Pause(pause)
	}
}
