package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/probe"
)

// Handshake performs a TLS handshake with the name and address in h, and sets the other fields of h. It returns the
// connection, which the caller must close, or nil if h.Error is set. If the handshake times out, Handshake repeats it
// with small packets, see probe.Handshake. It takes at most five times the timeout of a connection. The connection begins
// with a header of version of the PROXY protocol; empty for none.
func Handshake(ctx context.Context, d *net.Dialer, version v1alpha1.ProxyProtocol, h *probe.Handshake) *tls.Conn {
	conn, err := handshake(ctx, d, version, h)
	if err == nil {
		describe(h, conn)
		return conn
	}
	h.Error, h.Refused = err.Error(), !h.Connected && errors.Is(err, syscall.ECONNREFUSED)
	h.TimedOut = h.Connected && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)) && ctx.Err() == nil
	if !h.TimedOut {
		return nil
	}
	small := *d
	small.Control = smallSegments
	if conn, err := handshake(ctx, &small, version, &probe.Handshake{Name: h.Name, Address: h.Address}); err == nil {
		h.SmallPackets = true
		_ = conn.Close() // no data was sent
	}
	return nil
}

// shake connects and performs a TLS handshake. It sets h.Connected.
func handshake(ctx context.Context, d *net.Dialer, version v1alpha1.ProxyProtocol, h *probe.Handshake) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, attempts*timeout)
	defer cancel()
	raw, err := d.DialContext(ctx, "tcp", h.Address.String())
	if err != nil {
		return nil, err
	}
	h.Connected = true
	if _, err := raw.Write(proxyHeader(version, raw)); err != nil {
		_ = raw.Close() // the connection is broken
		return nil, err
	}
	//nolint:gosec // no secret is sent, and the report shows the certificate whether or not it is valid
	config := &tls.Config{ServerName: h.Name, NextProtos: []string{"h2", "http/1.1"}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS10}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // no data was sent
		return nil, err
	}
	return conn, nil
}

// proxyHeader returns the header of the PROXY protocol for a connection that is not on behalf of a client: in version 1
// the connection's own addresses, in version 2 the command LOCAL.
func proxyHeader(version v1alpha1.ProxyProtocol, conn net.Conn) []byte {
	switch version {
	case v1alpha1.ProxyProtocolV1:
		from, _ := netip.ParseAddrPort(conn.LocalAddr().String()) // of a TCP connection
		to, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		family := 6
		if from.Addr().Is4() {
			family = 4
		}
		return fmt.Appendf(nil, "PROXY TCP%d %s %s %d %d\r\n", family, from.Addr(), to.Addr(), from.Port(), to.Port())
	case v1alpha1.ProxyProtocolV2:
		return []byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00")
	case v1alpha1.ProxyProtocolNone:
	}
	return nil
}

// describe sets the fields of h about the certificate.
func describe(h *probe.Handshake, conn *tls.Conn) {
	certificate := conn.ConnectionState().PeerCertificates[0]
	h.Covered = certificate.VerifyHostname(h.Name) == nil
	h.Names = slices.Clone(certificate.DNSNames)
	for _, ip := range certificate.IPAddresses {
		h.Names = append(h.Names, ip.String())
	}
	h.NotBefore, h.NotAfter, h.Issuer = certificate.NotBefore.UTC(), certificate.NotAfter.UTC(), certificate.Issuer.String()
}
