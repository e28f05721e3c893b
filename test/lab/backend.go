package lab

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A CA issues certificates to the test servers of one test.
type CA struct {
	authority *authority
	roots     *x509.CertPool
}

// NewCA creates a certificate authority.
func NewCA(tb testing.TB) *CA {
	tb.Helper()
	a, err := newAuthority("lab")
	Must(tb, err)
	roots := x509.NewCertPool()
	roots.AddCert(a.x509)
	return &CA{authority: a, roots: roots}
}

// PEM returns the authority's own certificate.
func (ca *CA) PEM() []byte { return append([]byte(nil), ca.authority.cert...) }

// Roots returns a pool with the authority's certificate alone.
func (ca *CA) Roots() *x509.CertPool { return ca.roots.Clone() }

// Issue returns a server certificate for names, which are host names or IP addresses, and its key, both in
// PEM.
func (ca *CA) Issue(tb testing.TB, names ...string) (cert, key []byte) {
	tb.Helper()
	pair, err := ca.authority.server("lab", names...)
	Must(tb, err)
	return pair.cert, pair.key
}

// Certificate is Issue, with a tls.Certificate as result.
func (ca *CA) Certificate(tb testing.TB, names ...string) tls.Certificate {
	tb.Helper()
	pair, err := tls.X509KeyPair(ca.Issue(tb, names...))
	Must(tb, err)
	return pair
}

// A Backend is a test server that clients can identify: on each connection it sends its name as a line, and
// then echoes what it receives.
type Backend struct {
	name     string
	listener net.Listener
	done     sync.WaitGroup
	status   atomic.Int32 // of HTTP responses, see Respond

	mu     sync.Mutex // guards the fields below
	conns  map[net.Conn]struct{}
	closed bool
}

// TCPBackend starts a backend without TLS at an address such as 127.0.3.1:0. The end of the test closes it.
func TCPBackend(tb testing.TB, address, name string) *Backend {
	tb.Helper()
	return startBackend(tb, address, name, func(_ *Backend, conn net.Conn) { greet(conn, conn, name) })
}

// TLSBackend is TCPBackend with TLS. Its certificate is valid for names; it sends the first of them as its
// name. For clients that offer HTTP/1.1 by ALPN (RFC 7301), it is HTTPBackend with TLS.
func (ca *CA) TLSBackend(tb testing.TB, address string, names ...string) *Backend {
	tb.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{ca.Certificate(tb, names...)}, MinVersion: tls.VersionTLS12}
	overHTTP := config.Clone()
	overHTTP.NextProtos = []string{http1}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, http1) {
			return overHTTP, nil
		}
		return nil, nil //nolint:nilnil // selects the config itself
	}
	return startBackend(tb, address, names[0], func(b *Backend, raw net.Conn) {
		conn := tls.Server(raw, config)
		defer func() { _ = conn.Close() }() // sends close_notify, so that the client sees no truncation
		switch err := conn.HandshakeContext(context.Background()); {
		case err != nil:
		case conn.ConnectionState().NegotiatedProtocol == http1:
			b.serveHTTP(conn)
		default:
			greet(conn, conn, b.name)
		}
	})
}

// http1 is the name of HTTP/1.1 in ALPN.
const http1 = "http/1.1"

// HTTPBackend starts a backend for HTTP/1.1 without TLS. It responds to every request with its name, and the
// method, host and path of the request, one a line. It accepts upgrades to any protocol; then it sends its
// name and echoes.
func HTTPBackend(tb testing.TB, address, name string) *Backend {
	tb.Helper()
	return startBackend(tb, address, name, (*Backend).serveHTTP)
}

// greet sends the name, and echoes until the client closes its side.
func greet(conn io.Writer, from io.Reader, name string) {
	if _, err := fmt.Fprintf(conn, "%s\n", name); err == nil {
		_, _ = io.Copy(conn, from) // a client may disconnect at any time
	}
}

// Respond sets the status of all further HTTP responses; 0 for no response.
func (b *Backend) Respond(status int) { b.status.Store(int32(status)) }

func (b *Backend) serveHTTP(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if protocol := req.Header.Get("Upgrade"); protocol != "" {
			_, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
			if err == nil {
				greet(conn, in, b.name)
			}
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		status := int(b.status.Load())
		if status == 0 {
			_, _ = io.Copy(io.Discard, in) // until the client or the backend closes the connection
			return
		}
		body := fmt.Sprintf("%s\n%s\n%s\n%s\n", b.name, req.Method, req.Host, req.RequestURI)
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(body), body); err != nil {
			return
		}
	}
}

// ServeTCP calls handle with each connection to an address, which it closes afterwards, until the test ends.
func ServeTCP(tb testing.TB, address string, handle func(net.Conn)) {
	tb.Helper()
	startBackend(tb, address, "", func(_ *Backend, conn net.Conn) { handle(conn) })
}

// ServeHTTP runs an HTTP/1.1 server at an address until the test ends, with TLS if there are certificates, of which it selects one by SNI.
func ServeHTTP(tb testing.TB, address string, handler http.Handler, certificates ...tls.Certificate) {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", address)
	Must(tb, err)
	if len(certificates) > 0 {
		listener = tls.NewListener(listener, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), // probes connect without a request, which would be logged
	}
	go func() { _ = server.Serve(listener) }() // the error says only that it is closed
	tb.Cleanup(func() { _ = server.Close() })
}

func startBackend(tb testing.TB, address, name string, handle func(*Backend, net.Conn)) *Backend {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", address)
	Must(tb, err)
	b := &Backend{name: name, listener: listener, conns: map[net.Conn]struct{}{}}
	b.Respond(http.StatusOK)
	b.done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if !b.add(conn) {
				_ = conn.Close()
				return
			}
			b.done.Go(func() {
				defer b.remove(conn)
				handle(b, conn)
			})
		}
	})
	tb.Cleanup(b.Close)
	return b
}

func (b *Backend) add(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.conns[conn] = struct{}{}
	return true
}

func (b *Backend) remove(conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, conn)
	_ = conn.Close()
}

// Name returns the name that the backend sends.
func (b *Backend) Name() string { return b.name }

// Addr returns the address that the backend listens on.
func (b *Backend) Addr() netip.AddrPort { return netip.MustParseAddrPort(b.listener.Addr().String()) }

// Close stops the backend and closes all its connections. The end of the test does so as well.
func (b *Backend) Close() {
	_ = b.listener.Close() // an error if it is closed already
	b.mu.Lock()
	b.closed = true
	for conn := range b.conns {
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.done.Wait()
}

// DialTLS connects to the address of a backend or of a proxy, and verifies the certificate for serverName. It
// returns the connection, and the name of the backend that answered.
func (ca *CA) DialTLS(ctx context.Context, address, serverName string) (conn *tls.Conn, name string, err error) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, "", err
	}
	return ca.Handshake(ctx, raw, serverName)
}

// Handshake is DialTLS on an existing connection, which it closes on an error.
func (ca *CA) Handshake(ctx context.Context, raw net.Conn, serverName string) (conn *tls.Conn, name string, err error) {
	conn = tls.Client(raw, &tls.Config{RootCAs: ca.roots, ServerName: serverName, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, "", fmt.Errorf("TLS handshake with %s at %s: %w", serverName, raw.RemoteAddr(), errors.Join(err, raw.Close()))
	}
	name, err = Greeting(ctx, conn)
	if err != nil {
		return nil, "", errors.Join(err, raw.Close())
	}
	return conn, name, nil
}

// Greeting reads the name that a backend sends first, and not a byte more.
func Greeting(ctx context.Context, conn net.Conn) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // unblocks the read
	defer stop()
	var name []byte
	for one := make([]byte, 1); ; name = append(name, one[0]) {
		if _, err := io.ReadFull(conn, one); err != nil {
			return "", fmt.Errorf("reading a backend's name: %w", errors.Join(err, ctx.Err()))
		}
		if one[0] == '\n' {
			return string(name), nil
		}
	}
}
