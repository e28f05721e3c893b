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

// connectionDeadline bounds one connection.
const connectionDeadline = 10 * time.Second

// backend takes connections at every address and says, once a client has said anything,
// which one it is. It does no TLS: neither proxy does, and what the ends of a connection
// do would take the time from both.
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

// greet says the address of a connection's end here, and closes after the client has.
func greet(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(connectionDeadline)); err != nil {
		return
	}
	var buffer [2048]byte
	if _, err := conn.Read(buffer[:]); err != nil { // a probe, which says nothing
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

// close ends the backend; connections end with their clients.
func (b *backend) close() {
	_ = b.listener.Close()
	b.done.Wait()
}

// hello is a ClientHello as Go's TLS sends it.
func hello(host string) ([]byte, error) {
	c := &capture{}
	_ = tls.Client(c, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}).Handshake() //nolint:noctx // it ends with the first write
	if c.first == nil {
		return nil, fmt.Errorf("there is no ClientHello for %s", host)
	}
	return c.first, nil
}

// capture keeps what is written first, and fails.
type capture struct {
	net.Conn
	first []byte
}

func (c *capture) Write(p []byte) (int, error) {
	if c.first == nil {
		c.first = bytes.Clone(p)
	}
	return 0, errors.New("that was all")
}

// ask connects to a proxy, says hello, and returns which endpoint answers.
func ask(ctx context.Context, address string, hello []byte) (endpoint netip.Addr, err error) {
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

// expect is ask for an endpoint.
func expect(ctx context.Context, address string, hello []byte, want netip.Addr) error {
	got, err := ask(ctx, address, hello)
	if err == nil && got != want {
		err = fmt.Errorf("%s answers, and not %s", got, want)
	}
	return err
}

// port443 is where a proxy is asked.
func port443(host string) string { return net.JoinHostPort(host, "443") }

// awaitAll waits until each of the first n routes leads to its endpoint, and returns
// since when, as far as one can see who asks for one after the other.
func awaitAll(ctx context.Context, host string, n int) (since time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeDeadline)
	defer cancel()
	since = time.Now()
	for i := n - 1; i >= 0; i-- {
		r, waited := route(i), false
		h, err := hello(r.host())
		if err != nil {
			return since, err
		}
		err = until(ctx, pollPause, func() error {
			err := expect(ctx, port443(host), h, r.endpoint(false))
			waited = waited || err != nil
			return err
		})
		if err != nil {
			return since, fmt.Errorf("asking for %s at %s: %w", r.host(), host, err)
		}
		if waited {
			since = time.Now()
		}
	}
	return since, nil
}

// until tries until it succeeds, with a pause between.
func until(ctx context.Context, between time.Duration, try func() error) error {
	for {
		err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		measure.Pause(between)
	}
}
