package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Addresses of pods, and the last address that MetalLB assigns to the apps Service.
const (
	apiPod      = "198.51.100.10"
	oauthPod    = "198.51.100.11"
	newOAuthPod = "198.51.100.12"
	appsIP      = "192.168.50.205"
)

// The names of two apps, one label and two labels below the apps domain.
const (
	shopName = "shop.apps.demo.lab.example.com"
	cartName = "cart.shop.apps.demo.lab.example.com"
)

// backends are servers behind the proxy that reply with their names. Each has a certificate of its own.
type backends struct {
	dir     string // for the certificates
	servers []*http.Server
}

// startBackends starts two OAuth servers and the router of apps. dir is for their certificates.
func startBackends(ctx context.Context, dir string) (*backends, error) {
	p := &backends{dir: dir}
	if err := p.start(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *backends) start(ctx context.Context) error {
	oauth, err := p.certificate("oauth", "oauth.demo.lab.example.com", "oauth-openshift.apps.demo.lab.example.com")
	if err != nil {
		return err
	}
	shop, err := p.certificate("shop", shopName)
	if err != nil {
		return err
	}
	cart, err := p.certificate("cart", cartName)
	if err != nil {
		return err
	}
	first := replyWith(func(r *http.Request) string { return "oauth-openshift-1: request for " + r.Host })
	second := replyWith(func(r *http.Request) string { return "oauth-openshift-2: request for " + r.Host })
	applications := map[string]string{shopName: "shop", cartName: "cart"}
	router := http.NewServeMux()
	router.Handle("/", replyWith(func(r *http.Request) string {
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		return fmt.Sprintf("%s: request for %s from %s", applications[r.Host], r.Host, from)
	}))
	router.HandleFunc("/ticks", ticks)
	return errors.Join(
		p.serve(ctx, oauthPod+":6443", first, oauth),
		p.serve(ctx, newOAuthPod+":6443", second, oauth),
		p.serve(ctx, appsIP+":443", router, shop, cart), // selects the certificate by SNI
		p.serve(ctx, appsIP+":80", router),
	)
}

// replyWith returns a handler that replies with one line.
func replyWith(line func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, line(r)) })
}

// ticks streams a numbered line every five milliseconds until the client disconnects.
func ticks(w http.ResponseWriter, r *http.Request) {
	for tick := 1; r.Context().Err() == nil; tick++ {
		fmt.Fprintf(w, "tick %d\n", tick)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// serve starts an HTTP server, with TLS if there are certificates.
func (p *backends) serve(ctx context.Context, address string, handler http.Handler, certificates ...tls.Certificate) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("starting a server behind the proxy: %w", err)
	}
	if len(certificates) > 0 {
		l = tls.NewListener(l, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0), // Envoy's probes connect without a request, which would be logged
	}
	p.servers = append(p.servers, server)
	go func() { _ = server.Serve(l) }() // the error says only that stop closed it
	return nil
}

// certificate creates a self-signed certificate, so that a client that trusts it verifies exactly this server. It
// writes it for curl as FILE.crt.
func (p *backends) certificate(file string, names ...string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("creating a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: file}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("creating a certificate: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(filepath.Join(p.dir, file+".crt"), text, 0o600); err != nil {
		return tls.Certificate{}, fmt.Errorf("writing a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func (p *backends) stop() {
	for _, s := range p.servers {
		_ = s.Close() // open connections need not be drained
	}
}
