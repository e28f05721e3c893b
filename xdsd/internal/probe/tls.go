package probe

import (
	"context"
	"crypto/tls"
	"slices"

	"github.com/densityops/oooi/internal/probe"
)

// shake connects, and does a handshake.
func (s source) shake(ctx context.Context, h *probe.Handshake) {
	ctx, cancel := context.WithTimeout(ctx, tries*patience)
	defer cancel()
	raw, err := s.dialer("tcp", h.Address.Addr()).DialContext(ctx, "tcp", h.Address.String())
	if err != nil {
		h.Error = err.Error()
		return
	}
	defer func() { _ = raw.Close() }() // nothing was sent that matters
	h.Connected = true
	config := &tls.Config{ServerName: h.Name, NextProtos: []string{"h2", "http/1.1"}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS10} //nolint:gosec // nothing is sent; what the certificate says is what is asked
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
