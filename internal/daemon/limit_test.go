package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// TestConnectionsAreLimited holds connections to a daemon from one address, and from many.
func TestConnectionsAreLimited(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	lab.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- ServeHTTP(ctx, l, http.NotFoundHandler(), slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		lab.Report(t, <-served)
	})
	connect := func(from byte) net.Conn {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
		conn, err := dialer.DialContext(ctx, "tcp", l.Addr().String())
		lab.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	answers := func(conn net.Conn) bool {
		t.Helper()
		lab.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return false
		}
		n, err := conn.Read(make([]byte, 1))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return n == 1
	}
	var held []net.Conn
	for range maxConnectionsOfAnOrigin {
		held = append(held, connect(2))
	}
	if !answers(held[len(held)-1]) {
		t.Error("the last connection within the limit of an address is closed")
	}
	if answers(connect(2)) {
		t.Error("a connection above the limit of an address is served")
	}
	if !answers(connect(3)) {
		t.Error("another address is refused")
	}
	for _, conn := range held {
		lab.Must(t, conn.Close())
	}
	lab.Poll(t, "closed connections to be no longer counted", func() bool { return answers(connect(2)) })

	const addresses = maxConnections/maxConnectionsOfAnOrigin + 1
	for i := range byte(addresses) {
		for range maxConnectionsOfAnOrigin {
			connect(10 + i)
		}
	}
	if answers(connect(100)) {
		t.Error("a connection above the limit of all addresses is served")
	}
}
