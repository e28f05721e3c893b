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

// patience is how long one connection may take.
const patience = 30 * time.Second

// hello is how a client begins.
type hello struct {
	sni    string // empty for none
	verify string // name that the certificate is to have, where that is not sni
	large  bool   // 15 KiB of it
	halves bool   // a second apart
}

// dial connects to an address, does a handshake that verifies the backend's
// certificate, and returns the name that the backend says: proof of which one it is.
func (s *site) dial(ctx context.Context, address string, h hello) (conn *tls.Conn, name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, "", err
	}
	first := &firstWrite{Conn: raw, halves: h.halves}
	verify := h.verify
	if verify == "" {
		verify = h.sni
	}
	config := &tls.Config{
		ServerName: h.sni, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // for what is sent need not be what is verified
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: s.ca.Roots(), DNSName: verify})
			return err
		},
	}
	if h.large {
		// The rest is a key share of ML-KEM and so on. It has to fit into one TLS record.
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

// reach is dial to a port of the proxy for who wants to know no more than the name.
func (s *site) reach(t *testing.T, port int, h hello) (string, error) {
	t.Helper()
	conn, name, err := s.dial(t.Context(), s.at(3, port), h)
	if err != nil {
		return "", err
	}
	return name, conn.Close()
}

// await waits until the backend of a name is this one.
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

// firstWrite looks at what is written first, the ClientHello, and sends it in two
// parts, a second apart, if it is to.
type firstWrite struct {
	net.Conn
	halves bool
	size   int
}

func (c *firstWrite) Write(p []byte) (int, error) {
	if c.size > 0 {
		return c.Conn.Write(p)
	}
	c.size = len(p)
	if !c.halves {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:len(p)/2])
	if err != nil {
		return n, err
	}
	time.Sleep(time.Second) // that is the test
	m, err := c.Conn.Write(p[len(p)/2:])
	return n + m, err
}

// apiServer is a backend for TLS and, as a test needs to see who it reaches without,
// plain TCP: to each connection it says its name.
type apiServer struct {
	asked chan string // names that clients asked for
}

func newAPIServer(t *testing.T, s *site, address string, names ...string) *apiServer {
	t.Helper()
	a := &apiServer{asked: make(chan string, 1024)}
	config := &tls.Config{
		Certificates: []tls.Certificate{s.ca.Certificate(t, names...)}, MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			select {
			case a.asked <- h.ServerName:
			default: // nobody looks
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
				first, err := in.Peek(1) // whoever connects without TLS is to speak first
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

// names returns who was asked for since the last time.
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

// stream is a connection that ticks: each tick is sent, and has to come back before the
// next one is.
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

// tick starts a stream to a name, which is at this backend.
func (s *site) tick(t *testing.T, port int, h hello, want string) *stream {
	t.Helper()
	st := s.tryTick(t, port, h, want)
	if st == nil {
		t.Fatalf("%s on port %d does not lead to %s", h.sni, port, want)
	}
	return st
}

// tryTick is tick where the name may be at another backend: then there is none.
func (s *site) tryTick(t *testing.T, port int, h hello, want string) *stream {
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
		if err := st.conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := st.conn.Write(sent[:]); err != nil {
			return fmt.Errorf("tick %d: %w", n, err)
		}
		if _, err := io.ReadFull(st.conn, got[:]); err != nil {
			return fmt.Errorf("tick %d: %w", n, err)
		}
		if got != sent {
			return fmt.Errorf("tick %d came back as %d", n, binary.BigEndian.Uint64(got[:]))
		}
		st.ticks.Add(1)
		time.Sleep(time.Millisecond) // as other tests want to run, too
	}
	return nil
}

// more waits for further ticks.
func (st *stream) more(t *testing.T, n int64) {
	t.Helper()
	target := st.ticks.Load() + n
	lab.Poll(t, fmt.Sprintf("%d more ticks of %s", n, st.what), func() bool {
		select {
		case err := <-st.done:
			t.Fatalf("the stream to %s broke: %v", st.what, err)
		default:
		}
		return st.ticks.Load() >= target
	})
}

// end sees to it that no tick was lost.
func (st *stream) end(t *testing.T) {
	t.Helper()
	st.more(t, 1)
	st.finish(t)
	t.Logf("%d ticks of %s, none lost", st.ticks.Load(), st.what)
}

func (st *stream) finish(t *testing.T) {
	t.Helper()
	st.stop.Store(true)
	if err := <-st.done; err != nil {
		t.Errorf("the stream to %s broke: %v", st.what, err)
	}
}

// broken waits for the end of a stream, which is to come by itself within a time.
func (st *stream) broken(t *testing.T, within time.Duration) {
	t.Helper()
	started := time.Now()
	select {
	case err := <-st.done:
		t.Logf("the stream to %s was closed after %s: %v", st.what, time.Since(started).Round(time.Millisecond), err)
	case <-time.After(within):
		t.Errorf("the stream to %s is not closed within %s", st.what, within)
	}
}
