package lab

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// ClientHello returns the ClientHello of Go's TLS client for a server name, without the extension server_name if it is empty or
// not a host name.
func ClientHello(tb testing.TB, name string) []byte {
	tb.Helper()
	var sent firstWrite // with which the handshake ends
	config := &tls.Config{ServerName: name, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	_ = tls.Client(&sent, config).HandshakeContext(tb.Context())
	if sent.data == nil {
		tb.Fatalf("no ClientHello for %q", name)
	}
	return sent.data
}

// A firstWrite is a connection that keeps the first bytes that are written to it. All writes fail.
type firstWrite struct {
	net.Conn
	data []byte
}

func (w *firstWrite) Write(data []byte) (int, error) {
	if w.data == nil {
		w.data = bytes.Clone(data)
	}
	return 0, io.ErrClosedPipe
}

func (*firstWrite) SetDeadline(time.Time) error { return nil }
func (*firstWrite) Close() error                { return nil }
