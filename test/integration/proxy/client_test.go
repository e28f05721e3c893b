package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	split  bool   // send the ClientHello in two parts
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
		// The rest are key shares, such as ML-KEM's. Everything must fit into one TLS record.
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

// firstWrite records the size of the first write, which is the ClientHello, and optionally sends it in two parts.
type firstWrite struct {
	net.Conn
	split bool
	size  int
}

func (c *firstWrite) Write(p []byte) (int, error) {
	first := c.size == 0
	c.size = max(c.size, len(p))
	if !first || !c.split {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:len(p)/2])
	if err != nil {
		return n, err
	}
	time.Sleep(200 * time.Millisecond) // the delay under test
	m, err := c.Conn.Write(p[len(p)/2:])
	return n + m, err
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
	lab.Await(t, fmt.Sprintf("%s on port %d to lead to %s", h.sni, port, want), func() string {
		name, err := s.reach(t, port, h)
		if name != want {
			return fmt.Sprintf("leads to %q: %v", name, err)
		}
		return ""
	})
}

// awaitClosed waits until connections are closed.
func (s *site) awaitClosed(t *testing.T, what string, h hello) {
	t.Helper()
	lab.Await(t, "connections to "+what+" to be closed", func() string {
		if name, err := s.reach(t, 443, h); err == nil {
			return "leads to " + name
		}
		return ""
	})
}

// exchange sends a request for a path and returns the status, and the body or the location of a redirect. headers are
// "name: value".
func exchange(t *testing.T, conn net.Conn, method, host, path string, headers ...string) (status int, body string) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(dialTimeout))
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, host)
	for _, h := range headers {
		text += h + "\r\n"
	}
	if _, err := io.WriteString(conn, text+"\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	lab.Must(t, err)
	defer func() { _ = response.Body.Close() }()
	if to := response.Header.Get("Location"); to != "" {
		return response.StatusCode, to
	}
	data, err := io.ReadAll(response.Body)
	lab.Must(t, err)
	return response.StatusCode, string(data)
}

// request is exchange on a new connection.
func request(t *testing.T, address, method, host, path string, headers ...string) (status int, body string) {
	t.Helper()
	conn := dialFrom(t, "", address)
	defer func() { _ = conn.Close() }()
	return exchange(t, conn, method, host, path, headers...)
}

// dialFrom connects from an address of the VLAN; empty for any.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{Timeout: dialTimeout}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := d.DialContext(t.Context(), "tcp", to)
	lab.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// stream is a connection through the proxy on which each number must be echoed.
type stream struct {
	*lab.Stream

	what string
}

// startStream starts a stream to a name as soon as that leads to a backend.
func (s *site) startStream(t *testing.T, port int, h hello, want string) *stream {
	t.Helper()
	st := &stream{what: fmt.Sprintf("%s on port %d", h.sni, port)}
	lab.Await(t, st.what+" to lead to "+want, func() string {
		conn, name, err := s.dial(t.Context(), s.at(3, port), h)
		if err != nil {
			return err.Error()
		}
		if name != want {
			_ = conn.Close()
			return "leads to " + name
		}
		st.Stream = lab.NewStream(conn, 2*time.Millisecond)
		return ""
	})
	t.Cleanup(st.Close)
	return st
}

// awaitEchoes waits for n additional echoes.
func (st *stream) awaitEchoes(t *testing.T, n int) {
	t.Helper()
	target := st.Echoes() + n
	lab.Poll(t, fmt.Sprintf("%d more echoes of %s", n, st.what), func() bool {
		if err := st.Failure(); err != nil {
			t.Fatalf("stream to %s failed: %v", st.what, err)
		}
		return st.Echoes() >= target
	})
}

// end waits for one more echo, which fails the test if one was lost, and closes the stream.
func (st *stream) end(t *testing.T) {
	t.Helper()
	st.awaitEchoes(t, 1)
	st.Close()
}

// awaitClose waits until the proxy closes the stream, and fails the test if that takes longer than within.
func (st *stream) awaitClose(t *testing.T, within time.Duration) {
	t.Helper()
	began := time.Now()
	lab.Poll(t, "the stream to "+st.what+" to be closed", func() bool { return st.Failure() != nil })
	if took := time.Since(began); took > within {
		t.Errorf("the stream to %s was closed after %s, want at most %s", st.what, took, within)
	}
}
