package ads

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/densityops/oooi/xdsd/internal/ads/adstest"
)

func TestSocketIsPrivate(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := socket(t)
	l, err := ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if got := l.Addr().String(); got != path {
		t.Errorf("listens on %s", got)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket outlives its listener")
	}
}

func TestSocketThatIsThere(t *testing.T) {
	bind := func(t *testing.T, path string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, test := range []struct {
		name string
		make func(*testing.T, string)
		want string // in the error; empty for none
	}{
		{"of a dead process", func(t *testing.T, path string) {
			l := bind(t, path)
			l.SetUnlinkOnClose(false)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}, ""},
		{"of a live process", func(t *testing.T, path string) {
			l := bind(t, path)
			t.Cleanup(func() { _ = l.Close() })
		}, "another process serves"},
		{"a file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "no socket"},
		{"a link to elsewhere", func(t *testing.T, path string) {
			if err := os.Symlink("/dev/null", path); err != nil {
				t.Fatal(err)
			}
		}, "no socket"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := socket(t)
			test.make(t, path)
			l, err := ListenUnix(t.Context(), path)
			if err == nil {
				_ = l.Close()
			}
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if _, err := os.Lstat(path); test.want != "" && err != nil {
				t.Errorf("what was there is gone: %v", err)
			}
		})
	}
}

func TestPlainTCPIsRefused(t *testing.T) {
	l := localhost(t)
	if err := newServer(t, Options{}).Serve(t.Context(), l); err == nil || !strings.Contains(err.Error(), "without TLS") {
		t.Errorf("got %v", err)
	}
}

func TestListenerThatFailsIsReported(t *testing.T) {
	l, err := ListenUnix(t.Context(), socket(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := newServer(t, Options{}).Serve(t.Context(), l); err == nil {
		t.Error("nothing is said of a closed listener")
	}
}

func TestShutdownEndsEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	s := newServer(t, Options{})
	set(t, s, tenant, base())
	conn, stop := serve(t, s)
	pki := newPKI(t)
	tlsConn, stopTLS := serveTLS(t, s, pki, pki.ca.client(t, ProxyURI(tenant), good))
	var all []*adstest.Client
	for i, c := range []*grpc.ClientConn{conn, conn, tlsConn} {
		all = append(all, connect(t, c, adstest.Options{Cluster: tenant, ID: string(rune('a' + i))}))
	}
	awaitProxy(t, s, tenant, current(3))
	stop()
	stopTLS()
	if p, _ := s.ProxyState(tenant); len(p.Envoys) != 0 {
		t.Errorf("connected after the end: %+v", p.Envoys)
	}
	for _, c := range all {
		if _, err := c.Await(within(t), func(*adstest.View) bool { return false }); err == nil {
			t.Error("a stream outlives the server")
		}
		c.Close()
	}
	_, _ = conn.Close(), tlsConn.Close()
	// The runtime says nothing when a goroutine ends, so that this can only be polled.
	for deadline := time.Now().Add(give); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before: %d\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

type validity time.Duration

const (
	good    = validity(time.Hour)
	expired = validity(-time.Minute)
)

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) issue(t *testing.T, template *x509.Certificate) (certPEM, keyPEM []byte) {
	t.Helper()
	key := newKey(t)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func (a *authority) client(t *testing.T, uri string, v validity) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		NotAfter: time.Now().Add(time.Duration(v)), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for u := range strings.FieldsSeq(uri) {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	pair, err := tls.X509KeyPair(a.issue(t, template))
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// pki is a server's files as a mounted Secret has them: a link that is swapped.
type pki struct {
	dir string
	ca  *authority
	n   int
}

func newPKI(t *testing.T) *pki {
	p := &pki{dir: t.TempDir(), ca: newAuthority(t)}
	p.rotate(t, p.ca, p.ca)
	return p
}

func (p *pki) files() Files {
	return Files{
		Certificate: filepath.Join(p.dir, "data", "tls.crt"), Key: filepath.Join(p.dir, "data", "tls.key"),
		CA: filepath.Join(p.dir, "data", "ca.crt"),
	}
}

// rotate swaps in a server certificate by signer, and the authorities of clients.
func (p *pki) rotate(t *testing.T, signer *authority, clients ...*authority) {
	t.Helper()
	cert, key := signer.issue(t, &x509.Certificate{
		NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"xdsd"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	var bundle []byte
	for _, a := range clients {
		bundle = append(bundle, a.pem...)
	}
	p.swap(t, map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": bundle})
}

func (p *pki) swap(t *testing.T, files map[string][]byte) {
	t.Helper()
	p.n++
	dir := filepath.Join(p.dir, string(rune('a'+p.n)))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(p.dir, "new")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(p.dir, "data")); err != nil {
		t.Fatal(err)
	}
}

func serveTLS(t *testing.T, s *Server, p *pki, cert *tls.Certificate) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	c, err := LoadCertificates(p.files(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	l := localhost(t)
	stop = background(t, func(ctx context.Context) error { return s.ServeTLS(ctx, l, c) })
	return dialTLS(t, l.Addr().String(), p.ca, cert, nil), stop
}

func dialTLS(t *testing.T, addr string, roots *authority, cert *tls.Certificate, change func(*tls.Config)) *grpc.ClientConn {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(roots.cert)
	config := &tls.Config{RootCAs: pool, ServerName: "xdsd"}
	if cert != nil {
		// Always, whatever the server says it would like.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	if change != nil {
		change(config)
	}
	return dial(t, "passthrough:"+addr, grpc.WithTransportCredentials(credentials.NewTLS(config)))
}

func TestCertificateDecidesWhoIsServed(t *testing.T) {
	p := newPKI(t)
	other := newAuthority(t)
	for _, test := range []struct {
		name   string
		cert   *tls.Certificate
		change func(*tls.Config)
		want   codes.Code // OK for served
	}{
		{"its own", p.ca.client(t, ProxyURI(tenant), good), nil, codes.OK},
		{"another proxy's", p.ca.client(t, ProxyURI("ns/two"), good), nil, codes.PermissionDenied},
		{"of a longer name", p.ca.client(t, ProxyURI(tenant+"more"), good), nil, codes.PermissionDenied},
		{"another trust domain", p.ca.client(t, "spiffe://example.com/proxy/ns/one", good), nil, codes.PermissionDenied},
		{"two identities", p.ca.client(t, ProxyURI(tenant)+" "+ProxyURI("ns/two"), good), nil, codes.PermissionDenied},
		{"no identity", p.ca.client(t, "", good), nil, codes.PermissionDenied},
		{"of another authority", other.client(t, ProxyURI(tenant), good), nil, codes.Unavailable},
		{"expired", p.ca.client(t, ProxyURI(tenant), expired), nil, codes.Unavailable},
		{"none", nil, nil, codes.Unavailable},
		{"TLS 1.2", p.ca.client(t, ProxyURI(tenant), good), func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, codes.Unavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, Options{})
			set(t, s, tenant, base())
			c, err := LoadCertificates(p.files(), quiet())
			if err != nil {
				t.Fatal(err)
			}
			l := localhost(t)
			background(t, func(ctx context.Context) error { return s.ServeTLS(ctx, l, c) })
			client, err := adstest.Connect(within(t), dialTLS(t, l.Addr().String(), p.ca, test.cert, test.change), adstest.Options{Cluster: tenant, ID: "envoy-0"})
			var view *adstest.View
			if err == nil {
				t.Cleanup(client.Close)
				view, err = client.Await(within(t), func(v *adstest.View) bool { return len(v.Names(resource.ListenerType)) > 0 })
			}
			if status.Code(err) != test.want {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if test.want != codes.OK && view != nil && len(view.Responses) > 0 {
				t.Errorf("was sent %s", lines(view.Responses))
			}
		})
	}
}

func TestPlaintextToTLSIsRefused(t *testing.T) {
	s := newServer(t, Options{})
	p := newPKI(t)
	c, err := LoadCertificates(p.files(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	l := localhost(t)
	background(t, func(ctx context.Context) error { return s.ServeTLS(ctx, l, c) })
	client, err := adstest.Connect(within(t), dial(t, "passthrough:"+l.Addr().String(), insecureOption), adstest.Options{Cluster: tenant, ID: "envoy-0"})
	if err == nil {
		t.Cleanup(client.Close)
		_, err = client.Await(within(t), func(*adstest.View) bool { return false })
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestRotationDropsNoStream(t *testing.T) {
	s := newServer(t, Options{})
	set(t, s, tenant, base())
	p := newPKI(t)
	c, err := LoadCertificates(p.files(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	l := localhost(t)
	background(t, func(ctx context.Context) error { return s.ServeTLS(ctx, l, c) })
	addr := l.Addr().String()
	old := p.ca.client(t, ProxyURI(tenant), good)
	first := connect(t, dialTLS(t, addr, p.ca, old, nil), adstest.Options{Cluster: tenant, ID: "first"})
	awaitProxy(t, s, tenant, current(1))

	// Everything anew: the server's certificate and both authorities.
	next := newAuthority(t)
	p.rotate(t, next, next)
	connect(t, dialTLS(t, addr, next, next.client(t, ProxyURI(tenant), good), nil), adstest.Options{Cluster: tenant, ID: "second"})
	awaitProxy(t, s, tenant, current(2))
	// The old authority is no longer believed; TLS 1.3 says so after the handshake.
	refused, err := adstest.Connect(within(t), dialTLS(t, addr, next, old, nil), adstest.Options{Cluster: tenant, ID: "third"})
	if err == nil {
		t.Cleanup(refused.Close)
		_, err = refused.Await(within(t), func(*adstest.View) bool { return false })
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a client of the old authority: %v", err)
	}
	// Files that are no good leave those that are.
	for name, files := range map[string]map[string][]byte{
		"garbage": {"tls.crt": []byte("x"), "tls.key": []byte("x"), "ca.crt": []byte("x")},
		"missing": {},
		"no CA":   {"tls.crt": c.read[0], "tls.key": c.read[1], "ca.crt": nil},
	} {
		p.swap(t, files)
		again := connect(t, dialTLS(t, addr, next, next.client(t, ProxyURI(tenant), good), nil), adstest.Options{Cluster: tenant, ID: "again"})
		awaitProxy(t, s, tenant, current(3))
		if expires, err := c.Status(); err == nil || expires.IsZero() {
			t.Errorf("%s: nothing is reported: %v, %v", name, expires, err)
		}
		again.Close()
		awaitProxy(t, s, tenant, current(2))
	}
	p.rotate(t, next, next)
	connect(t, dialTLS(t, addr, next, next.client(t, ProxyURI(tenant), good), nil), adstest.Options{Cluster: tenant, ID: "last"})
	awaitProxy(t, s, tenant, current(3))
	if _, err := c.Status(); err != nil {
		t.Errorf("good files are reported: %v", err)
	}

	// The first stream has seen nothing of it.
	r := base()
	r.Clusters = append(r.Clusters, clusters("c")...)
	set(t, s, tenant, r)
	await(t, first, func(v *adstest.View) bool { return v.Resources[resource.ClusterType]["c"] != nil })
}

func TestCertificatesMustBeGoodOnce(t *testing.T) {
	p := newPKI(t)
	files := p.files()
	files.CA = files.Key
	for _, files := range []Files{{}, files, {Certificate: files.Certificate, Key: files.Certificate, CA: p.files().CA}} {
		if _, err := LoadCertificates(files, nil); err == nil {
			t.Errorf("%+v are good", files)
		}
	}
}

func FuzzProxyOf(f *testing.F) {
	for _, uri := range []string{
		ProxyURI(tenant), ProxyURI("ns/"), ProxyURI("/one"), ProxyURI("ns/one/two"), "spiffe://oooi@evil/proxy/ns/one",
		ProxyURI("ns%2fone"), ProxyURI("ns/one?x"), ProxyURI("ns/one#x"), "SPIFFE://oooi/proxy/ns/one", "", uriPrefix,
	} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		name, err := proxyOf(uri)
		if err != nil {
			return
		}
		if err := checkName(name); err != nil || ProxyURI(name) != uri {
			t.Errorf("%q is of %q: %v", uri, name, err)
		}
		if u, err := url.Parse(uri); err != nil || u.String() != uri || u.Host != "oooi" || u.Path != "/proxy/"+name {
			t.Errorf("%q reads as %+v: %v", uri, u, err)
		}
	})
}
