package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"time"
)

// A keyPair is a certificate with its key, in PEM.
type keyPair struct{ cert, key []byte }

// An authority signs the certificates of one control plane.
type authority struct {
	keyPair
	x509 *x509.Certificate
	priv *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name + "-ca"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	pair, cert, priv, err := sign(template, nil)
	if err != nil {
		return nil, fmt.Errorf("creating a certificate authority: %w", err)
	}
	return &authority{keyPair: pair, x509: cert, priv: priv}, nil
}

// client issues a certificate with which the API server authenticates its holder as user, in groups.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	pair, _, _, err := sign(&x509.Certificate{
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
	pair, _, _, err := sign(template, a)
	if err != nil {
		return keyPair{}, fmt.Errorf("issuing a certificate for %s: %w", subject, err)
	}
	return pair, nil
}

// sign completes the template and signs it with the authority, or self-signs it if by is nil.
func sign(template *x509.Certificate, by *authority) (keyPair, *x509.Certificate, *ecdsa.PrivateKey, error) {
	fail := func(err error) (keyPair, *x509.Certificate, *ecdsa.PrivateKey, error) {
		return keyPair{}, nil, nil, err
	}
	priv, keyPEM, err := newKey()
	if err != nil {
		return fail(err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return fail(err)
	}
	// Valid since an hour ago, because clocks of VMs jump.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	issuer, signer := template, priv
	if by != nil {
		issuer, signer = by.x509, by.priv
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, priv.Public(), signer)
	if err != nil {
		return fail(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return fail(err)
	}
	return keyPair{cert: pemBlock("CERTIFICATE", der), key: keyPEM}, cert, priv, nil
}

// newKey returns an ECDSA key. Generating it takes microseconds; RSA takes seconds.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(priv)
	if err != nil {
		return nil, nil, err
	}
	return priv, pemBlock("EC PRIVATE KEY", der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
