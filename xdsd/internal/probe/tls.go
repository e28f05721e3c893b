package probe

import (
	"context"
	"crypto/tls"
	"slices"

	"github.com/densityops/oooi/internal/probe"
)

// handshake performs a TLS handshake with the name and address in h, and sets the other fields of h.
func (s source) handshake(ctx context.Context, h *probe.Handshake) {
	ctx, cancel := context.WithTimeout(ctx, attempts*timeout)
	defer cancel()
	raw, err := s.dialer("tcp", h.Address.Addr()).DialContext(ctx, "tcp", h.Address.String())
	if err != nil {
		h.Error = err.Error()
		return
	}
	defer func() { _ = raw.Close() }() // no data was sent
	h.Connected = true
	config := &tls.Config{ServerName: h.Name, NextProtos: []string{"h2", "http/1.1"}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS10} //nolint:gosec // no data is sent, and the report shows the certificate whether or not it is valid
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		h.Error = err.Error()
		return
	}
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
