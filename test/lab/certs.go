package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net/netip"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// A keyPair is a certificate with its key, in PEM.
type keyPair struct{ cert, key []byte }

// An authority signs the certificates of one control plane.
type authority struct {
	keyPair
	x509 *x509.Certificate
	priv crypto.Signer
}

func newAuthority(name string) (*authority, error) {
	pair, err := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: name + "-ca"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("creating a certificate authority: %w", err)
	}
	return parseAuthority(pair)
}

// parseAuthority returns the authority of a certificate and its key.
func parseAuthority(pair keyPair) (*authority, error) {
	certs, err := certutil.ParseCertsPEM(pair.cert)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(pair.key)
	if err != nil {
		return nil, err
	}
	priv, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the key is a %T", key)
	}
	return &authority{pair, certs[0], priv}, nil
}

// client issues a certificate with which the API server authenticates its holder as user, in groups.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	pair, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a)
	if err != nil {
		return keyPair{}, fmt.Errorf("issuing a certificate for user %s: %w", user, err)
	}
	return pair, nil
}

// server issues a certificate for host names and IP addresses.
func (a *authority) server(subject string, names ...string) (keyPair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: subject},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	pair, err := sign(template, a)
	if err != nil {
		return keyPair{}, fmt.Errorf("issuing a certificate for %s: %w", subject, err)
	}
	return pair, nil
}

// sign completes the template and signs it with the authority, or self-signs it if by is nil. The key is for ECDSA, because
// generating one for RSA takes seconds.
func sign(template *x509.Certificate, by *authority) (pair keyPair, err error) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
	if pair.key, err = keyutil.MarshalPrivateKeyToPEM(priv); err != nil {
		return pair, err
	}
	// Valid since an hour ago, because clocks of VMs jump.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	if by == nil {
		by = &authority{x509: template, priv: priv}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.x509, priv.Public(), by.priv)
	pair.cert = pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
	return pair, err
}
