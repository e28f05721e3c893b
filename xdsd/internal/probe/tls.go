package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"

	"github.com/densityops/oooi/internal/probe"
)

// handshake performs a TLS handshake with the name and address in h, and sets the other fields of h.
func (s source) handshake(ctx context.Context, h *probe.Handshake) {
	if conn := Handshake(ctx, s.dialer("tcp", h.Address.Addr()), h); conn != nil {
		_ = conn.Close() // no data was sent
	}
}

// Handshake performs a TLS handshake with the name and address in h, and sets the other fields of h. It returns the
// connection, which the caller must close, or nil if h.Error is set. If the handshake times out, Handshake repeats it
// with small packets, see probe.Handshake. It takes at most five times the timeout of a connection.
func Handshake(ctx context.Context, d *net.Dialer, h *probe.Handshake) *tls.Conn {
	conn, err := shake(ctx, d, h)
	if err == nil {
		describe(h, conn)
		return conn
	}
	h.Error = err.Error()
	h.TimedOut = h.Connected && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)) && ctx.Err() == nil
	if !h.TimedOut {
		return nil
	}
	small := *d
	small.Control = setSegmentSize
	if conn, err := shake(ctx, &small, &probe.Handshake{Name: h.Name, Address: h.Address}); err == nil {
		h.SmallPackets = true
		_ = conn.Close() // no data was sent
	}
	return nil
}

// shake connects and performs a TLS handshake. It sets h.Connected.
func shake(ctx context.Context, d *net.Dialer, h *probe.Handshake) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, attempts*timeout)
	defer cancel()
	raw, err := d.DialContext(ctx, "tcp", h.Address.String())
	if err != nil {
		return nil, err //nolint:wrapcheck // names the address
	}
	h.Connected = true
	config := &tls.Config{ServerName: h.Name, NextProtos: []string{"h2", "http/1.1"}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS10} //nolint:gosec // no secret is sent, and the report shows the certificate whether or not it is valid
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // no data was sent
		return nil, err //nolint:wrapcheck // goes to the report
	}
	return conn, nil
}

// describe sets the fields of h about the certificate and the protocol.
func describe(h *probe.Handshake, conn *tls.Conn) {
	state := conn.ConnectionState()
	certificate := state.PeerCertificates[0]
	h.Protocol = state.NegotiatedProtocol
	h.Covered = certificate.VerifyHostname(h.Name) == nil
	h.Names = slices.Clone(certificate.DNSNames)
	for _, ip := range certificate.IPAddresses {
		h.Names = append(h.Names, ip.String())
	}
	h.NotBefore, h.NotAfter, h.Issuer = certificate.NotBefore.UTC(), certificate.NotAfter.UTC(), certificate.Issuer.String()
}
