package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// connectionDeadline limits one connection.
const connectionDeadline = 10 * time.Second

// startBackend accepts connections at all addresses, and replies to a client's first bytes with the address. It does not use
// TLS: no proxy terminates it, and the ends of a connection would take CPU time from the proxy.
func (b *bench) startBackend() {
	b.Helper()
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp4", ":"+strconv.Itoa(backendPort))
	b.check(err)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() { greet(conn) })
		}
	})
	b.Cleanup(func() {
		_ = l.Close()
		done.Wait()
	})
}

// greet waits for the client's first bytes, sends the connection's local address, and closes the connection after the client
// has.
func greet(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(connectionDeadline))
	var buffer [2048]byte
	if _, err := conn.Read(buffer[:]); err != nil { // a health check, which sends nothing
		return
	}
	address, _ := netip.ParseAddrPort(conn.LocalAddr().String())
	if _, err := conn.Write(append(address.Addr().Unmap().AppendTo(nil), '\n')); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// expect connects to a proxy, sends a ClientHello, and returns an error unless the endpoint want replies.
func (b *bench) expect(host string, hello []byte, want netip.Addr) error {
	conn, err := b.connect(host, hello, want)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// connect is expect, and returns the open connection.
func (b *bench) connect(host string, hello []byte, want netip.Addr) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp4", net.JoinHostPort(host, "443"))
	if err != nil {
		return nil, err
	}
	if err := greeted(conn, hello, want); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// greeted sends a ClientHello, and returns an error unless the endpoint want replies.
func greeted(conn net.Conn, hello []byte, want netip.Addr) error {
	_ = conn.SetDeadline(time.Now().Add(connectionDeadline))
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	var buffer [64]byte
	n := 0
	for n < len(buffer) && !bytes.HasSuffix(buffer[:n], []byte("\n")) {
		m, err := conn.Read(buffer[n:])
		if err != nil {
			return err
		}
		n += m
	}
	got, err := netip.ParseAddr(string(bytes.TrimSpace(buffer[:n])))
	if err == nil && got != want {
		err = fmt.Errorf("reply from endpoint %s, want %s", got, want)
	}
	return err
}

// measureConnections adds the memory of Envoy for each open connection.
func (b *proxyBench) measureConnections(envoy int) {
	b.Helper()
	const connections = 500
	before := b.memory(envoy)
	for i := range connections {
		r := route(i % len(b.hellos))
		conn, err := b.connect(envoyAddress, b.hellos[r], ofRoute(r))
		b.check(err)
		defer func() { _ = conn.Close() }()
	}
	each := 1024 * (b.memory(envoy) - before) / connections
	b.addFigure(fmt.Sprintf("%d routes: memory of Envoy for each of %d open connections", len(b.hellos), connections), each, "kB", target{})
}

// awaitAll waits until each of the first n routes works. It tries them one after the other, and returns the time at which the
// last one that it had to wait for worked.
func (b *proxyBench) awaitAll(host string, n int, endpoint func(route) netip.Addr) (since time.Time) {
	b.Helper()
	since = time.Now()
	for i := n - 1; i >= 0; i-- {
		r, began, waited := route(i), time.Now(), false
		for {
			err := b.expect(host, b.hellos[r], endpoint(r))
			if err == nil {
				break
			}
			if time.Since(began) > 2*changeDeadline {
				b.Fatalf("connecting to %s at %s: %v", r.host(), host, err)
			}
			pause(time.Millisecond)
			waited = true
		}
		if waited {
			since = time.Now()
		}
	}
	return since
}

// connectAll runs clients for the given time, each with one connection after the other, to the routes in turn.
func (b *proxyBench) connectAll(host string, endpoint func(route) netip.Addr, clients int, slice time.Duration) sample {
	b.Helper()
	started := time.Now()
	times, errs := make([][]time.Duration, clients), make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for next := i * len(b.hellos) / clients; time.Since(started) < slice && errs[i] == nil; next++ {
				r, began := route(next%len(b.hellos)), time.Now()
				errs[i] = b.expect(host, b.hellos[r], endpoint(r))
				times[i] = append(times[i], time.Since(began))
			}
		})
	}
	group.Wait()
	took := time.Since(started)
	if err := errors.Join(errs...); err != nil {
		b.Fatalf("connecting through %s: %v", host, err)
	}
	var all []time.Duration
	for _, list := range times {
		all = append(all, list...)
	}
	return sample{operations: len(all), took: took, latency: quantile(all, 0.5)}
}
