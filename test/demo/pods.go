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

// Addresses of pods, and the one that MetalLB gave the applications' Service at last.
const (
	apiPod      = "198.51.100.10"
	oauthPod    = "198.51.100.11"
	newOAuthPod = "198.51.100.12"
	appsIP      = "192.168.50.205"
)

// The names of two applications: one below the domain, and one two labels below.
const (
	shopName = "shop.apps.demo.lab.example.com"
	cartName = "cart.shop.apps.demo.lab.example.com"
)

// pods are servers behind the proxy, each with a certificate of its own, that say who
// they are.
type pods struct {
	dir     string // for the certificates
	servers []*http.Server
}

// startPods starts the OAuth server twice, and the applications' router.
func startPods(ctx context.Context, dir string) (*pods, error) {
	p := &pods{dir: dir}
	if err := p.start(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *pods) start(ctx context.Context) error {
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
	first := says(func(r *http.Request) string { return "oauth-openshift-1, asked for " + r.Host })
	second := says(func(r *http.Request) string { return "oauth-openshift-2, asked for " + r.Host })
	applications := map[string]string{shopName: "shop", cartName: "cart"}
	router := http.NewServeMux()
	router.Handle("/", says(func(r *http.Request) string {
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		return fmt.Sprintf("%s, asked for %s by %s", applications[r.Host], r.Host, from)
	}))
	router.HandleFunc("/ticks", ticks)
	return errors.Join(
		p.serve(ctx, oauthPod+":6443", first, oauth),
		p.serve(ctx, newOAuthPod+":6443", second, oauth),
		p.serve(ctx, appsIP+":443", router, shop, cart), // by server name
		p.serve(ctx, appsIP+":80", router),
	)
}

// says answers with a line.
func says(line func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, line(r)) })
}

// ticks answers with a number every few milliseconds, until the client has enough.
func ticks(w http.ResponseWriter, r *http.Request) {
	for tick := 1; r.Context().Err() == nil; tick++ {
		fmt.Fprintf(w, "tick %d\n", tick)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// serve serves HTTP, with TLS if there are certificates for it.
func (p *pods) serve(ctx context.Context, address string, handler http.Handler, certificates ...tls.Certificate) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("starting a server behind the proxy: %w", err)
	}
	if len(certificates) > 0 {
		l = tls.NewListener(l, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0), // of Envoy's probes, which say nothing
	}
	p.servers = append(p.servers, server)
	go func() { _ = server.Serve(l) }() // it ends when it is closed, which is no failure
	return nil
}

// certificate makes a certificate that nobody but itself vouches for, so that who
// trusts it knows the server. It writes it for curl, as NAME.crt.
func (p *pods) certificate(file string, names ...string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: file}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(filepath.Join(p.dir, file+".crt"), text, 0o600); err != nil {
		return tls.Certificate{}, fmt.Errorf("writing a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func (p *pods) stop() {
	for _, s := range p.servers {
		_ = s.Close() // its clients are gone, or soon will be
	}
}
