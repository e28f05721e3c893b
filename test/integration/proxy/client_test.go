package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// dialTimeout bounds a connection with its handshake, and each exchange on it.
const dialTimeout = 30 * time.Second

// hello describes the ClientHello of a connection.
type hello struct {
	sni    string // empty for no SNI
	verify string // name to verify in the certificate, if not sni
	large  bool   // a ClientHello of 15 KiB
	split  bool   // send the ClientHello in two parts, a second apart
}

// dial connects to an address, does a TLS handshake that verifies the backend's certificate, and returns the
// name that the backend sends.
func (s *site) dial(ctx context.Context, address string, h hello) (conn *tls.Conn, name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, "", err
	}
	first := &firstWrite{Conn: raw, split: h.split}
	verify := h.verify
	if verify == "" {
		verify = h.sni
	}
	config := &tls.Config{
		ServerName: h.sni, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection verifies, because the verified name may differ from the SNI
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: s.ca.Roots(), DNSName: verify})
			return err
		},
	}
	if h.large {
		// The rest are key shares, such as that of ML-KEM. Everything must fit into one TLS record.
		for i := range 56 {
			config.NextProtos = append(config.NextProtos, fmt.Sprintf("%0250d", i))
		}
	}
	conn = tls.Client(first, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, "", fmt.Errorf("TLS handshake with %s at %s: %w", h.sni, address, errors.Join(err, raw.Close()))
	}
	if h.large && first.size < 15<<10 {
		return nil, "", errors.Join(fmt.Errorf("the ClientHello has only %d bytes", first.size), raw.Close())
	}
	if name, err = lab.Greeting(ctx, conn); err != nil {
		return nil, "", errors.Join(err, raw.Close())
	}
	return conn, name, nil
}

// reach connects to a port of the proxy and returns only the backend's name.
func (s *site) reach(t *testing.T, port int, h hello) (string, error) {
	t.Helper()
	conn, name, err := s.dial(t.Context(), s.at(3, port), h)
	if err != nil {
		return "", err
	}
	return name, conn.Close()
}

// await waits until a connection reaches a backend.
func (s *site) await(t *testing.T, port int, h hello, want string) {
	t.Helper()
	var last string
	lab.Poll(t, fmt.Sprintf("%s on port %d to lead to %s", h.sni, port, want), func() bool {
		name, err := s.reach(t, port, h)
		if now := fmt.Sprint(name, err); now != last {
			last = now
			if name != want {
				t.Logf("%s on port %d still leads to %q, %v", h.sni, port, name, err)
			}
		}
		return name == want
	})
}

// firstWrite records the size of the first write, which is the ClientHello, and optionally sends it in two
// parts, a second apart.
type firstWrite struct {
	net.Conn
	split bool
	size  int
}

func (c *firstWrite) Write(p []byte) (int, error) {
	if c.size > 0 {
		return c.Conn.Write(p)
	}
	c.size = len(p)
	if !c.split {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:len(p)/2])
	if err != nil {
		return n, err
	}
	time.Sleep(time.Second) // the delay under test
	m, err := c.Conn.Write(p[len(p)/2:])
	return n + m, err
}

// apiServer is a backend for TLS and plain TCP, so that tests can see connections without TLS. It sends its
// name on each connection, and records the requested names.
type apiServer struct {
	asked chan string // SNIs of connections
}

func newAPIServer(t *testing.T, s *site, address string, names ...string) *apiServer {
	t.Helper()
	a := &apiServer{asked: make(chan string, 1024)}
	config := &tls.Config{
		Certificates: []tls.Certificate{s.ca.Certificate(t, names...)}, MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			select {
			case a.asked <- h.ServerName:
			default: // no test reads them
			}
			return nil, nil
		},
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(conn)
				first, err := in.Peek(1) // clients without TLS must send first
				if err != nil {
					return
				}
				var c net.Conn = &buffered{conn, in}
				if first[0] == 0x16 {
					c = tls.Server(c, config)
					defer func() { _ = c.Close() }()
				}
				if _, err := fmt.Fprintln(c, names[0]); err == nil {
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
	return a
}

// names returns the SNIs of connections since the last call.
func (a *apiServer) names() []string {
	var list []string
	for {
		select {
		case name := <-a.asked:
			list = append(list, strings.ToLower(name))
		default:
			return list
		}
	}
}

type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// stream is a connection that sends a number of ticks: each must be echoed before the next is sent.
type stream struct {
	what  string
	conn  net.Conn
	ticks atomic.Int64
	stop  atomic.Bool
	done  chan error
}

func newStream(what string, conn net.Conn) *stream {
	return &stream{what: what, conn: conn, done: make(chan error, 1)}
}

func (st *stream) close() {
	st.stop.Store(true)
	_ = st.conn.Close()
}

// startStream starts a stream to a name that leads to a backend.
func (s *site) startStream(t *testing.T, port int, h hello, want string) *stream {
	t.Helper()
	st := s.tryStartStream(t, port, h, want)
	if st == nil {
		t.Fatalf("%s on port %d does not lead to %s", h.sni, port, want)
	}
	return st
}

// tryStartStream is startStream, but returns nil if the connection reaches another backend.
func (s *site) tryStartStream(t *testing.T, port int, h hello, want string) *stream {
	t.Helper()
	conn, name, err := s.dial(t.Context(), s.at(3, port), h)
	if err != nil {
		t.Fatal(err)
	}
	if name != want {
		_ = conn.Close()
		return nil
	}
	st := newStream(fmt.Sprintf("%s on port %d", h.sni, port), conn)
	go func() { st.done <- st.run() }()
	t.Cleanup(st.close)
	return st
}

func (st *stream) run() error {
	var sent, got [8]byte
	for !st.stop.Load() {
		n := st.ticks.Load()
		binary.BigEndian.PutUint64(sent[:], uint64(n))
		if err := st.conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
			return err
		}
		if _, err := st.conn.Write(sent[:]); err != nil {
			return fmt.Errorf("tick %d: %w", n, err)
		}
		if _, err := io.ReadFull(st.conn, got[:]); err != nil {
			return fmt.Errorf("tick %d: %w", n, err)
		}
		if got != sent {
			return fmt.Errorf("tick %d was echoed as %d", n, binary.BigEndian.Uint64(got[:]))
		}
		st.ticks.Add(1)
		time.Sleep(time.Millisecond) // leaves processor time for other tests
	}
	return nil
}

// awaitTicks waits for n further ticks.
func (st *stream) awaitTicks(t *testing.T, n int64) {
	t.Helper()
	target := st.ticks.Load() + n
	lab.Poll(t, fmt.Sprintf("%d more ticks of %s", n, st.what), func() bool {
		select {
		case err := <-st.done:
			t.Fatalf("stream to %s failed: %v", st.what, err)
		default:
		}
		return st.ticks.Load() >= target
	})
}

// end waits for one more tick, stops the stream and checks that no tick was lost.
func (st *stream) end(t *testing.T) {
	t.Helper()
	st.awaitTicks(t, 1)
	st.stopAndCheck(t)
	t.Logf("%d ticks of %s, none lost", st.ticks.Load(), st.what)
}

func (st *stream) stopAndCheck(t *testing.T) {
	t.Helper()
	st.stop.Store(true)
	if err := <-st.done; err != nil {
		t.Errorf("stream to %s failed: %v", st.what, err)
	}
}

// awaitClose waits until the proxy closes the stream, and fails the test if that takes longer than within.
func (st *stream) awaitClose(t *testing.T, within time.Duration) {
	t.Helper()
	started := time.Now()
	select {
	case err := <-st.done:
		t.Logf("stream to %s was closed after %s: %v", st.what, time.Since(started).Round(time.Millisecond), err)
	case <-time.After(within):
		t.Errorf("stream to %s was not closed within %s", st.what, within)
	}
}
