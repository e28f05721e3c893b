package ads

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const uriPrefix = "spiffe://oooi/proxy/"

// ProxyURI is the URI SAN by which a client certificate is a proxy's, named
// namespace/name: "spiffe://oooi/proxy/<namespace>/<name>".
func ProxyURI(proxy string) string { return uriPrefix + proxy }

// proxyOf reverses ProxyURI.
func proxyOf(uri string) (string, error) {
	name, ok := strings.CutPrefix(uri, uriPrefix)
	if !ok {
		return "", fmt.Errorf("the URI %q does not begin with %s", uri, uriPrefix)
	}
	// Kubernetes' names: no escapes, queries or anything else that two readers of a URI
	// may see differently.
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '/' {
			return "", fmt.Errorf("the URI %q has more in it than a namespace and a name", uri)
		}
	}
	return name, checkName(name)
}

// certificateProxy is the proxy of a client certificate. It has one URI, as SPIFFE
// asks, and so one identity.
func certificateProxy(c *x509.Certificate) (string, error) {
	if len(c.URIs) != 1 {
		return "", fmt.Errorf("the client certificate has %d URIs, not one", len(c.URIs))
	}
	proxy, err := proxyOf(c.URIs[0].String())
	if err != nil {
		return "", fmt.Errorf("the client certificate: %w", err)
	}
	return proxy, nil
}

// certified is the proxy of the peer's certificate, which the handshake verified.
func certified(ctx context.Context) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", errors.New("there is no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return "", errors.New("there is no client certificate")
	}
	return certificateProxy(info.State.PeerCertificates[0])
}
