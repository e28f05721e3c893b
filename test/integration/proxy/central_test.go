package proxy_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// central is one xdsd for the Envoys of two tenants, over TCP.
type central struct {
	ca      *lab.CA // of both ends
	secret  *secret // xdsd's
	xdsd    *daemon
	tenants [2]*tenant
}

// tenant is a ProxyServer on a port of its own: the tenants share a host.
type tenant struct {
	*site
	port    int
	backend string // whose certificate is for all names under the domain
	secret  *secret
	envoy   *lab.Envoy
}

const (
	centralHost    = "127.0.200.1"
	centralAddress = centralHost + ":18000"
)

func newCentral(t *testing.T) *central {
	t.Helper()
	c := &central{ca: lab.NewCA(t), secret: newSecret(t)}
	flags := []string{
		"--socket", "", "--listen", centralAddress,
		"--tls-cert", c.secret.at("tls.crt"), "--tls-key", c.secret.at("tls.key"), "--tls-ca", c.secret.at("ca.crt"),
	}
	for i := range c.tenants {
		n := &tenant{site: newSite(t), port: 1443 + 1000*i, secret: newSecret(t)}
		n.backend = n.name + "-backend"
		b := n.ca.TLSBackend(t, n.at(21, 443), n.backend, "*."+n.domain)
		n.update(t, namespaces("clusters", "apps-"+n.name)+service("apps-"+n.name, "backend", 443, b.Addr())+n.object("one"))
		n.secret.write(t, c.ca, n.uri())
		c.tenants[i] = n
		flags = append(flags, "--proxy-server", "clusters/"+n.name)
	}
	c.secret.write(t, c.ca, "xdsd")
	c.xdsd = newDaemon(t, centralHost+":9902", append(flags, "--kubeconfig", c.tenants[0].cp.Kubeconfig())...)
	c.xdsd.Start(t)
	for _, n := range c.tenants {
		n.envoy = lab.NewEnvoy(t, n.bootstrap(t, n.dir, n.secret))
	}
	c.current(t)
	return c
}

// uri is who the tenant's Envoys are, by their certificate.
func (n *tenant) uri() string { return "spiffe://oooi/proxy/clusters/" + n.name }

// object is the ProxyServer, with these names under its domain.
func (n *tenant) object(labels ...string) string {
	var backends []string
	for _, label := range labels {
		backends = append(backends, strings.Replace(n.site.backend(label, label+"."+n.domain, "backend", ""), "port: 443", fmt.Sprintf("port: %d", n.port), 1))
	}
	return strings.Replace(n.proxyServer(backends...), "infraRef: {name: "+n.name+"}", "", 1)
}

// bootstrap is for an Envoy of the tenant with the certificate of a secret.
func (n *tenant) bootstrap(t *testing.T, dir string, s *secret, more ...string) lab.EnvoyConfig {
	t.Helper()
	return bootstrap(t, append([]string{
		"--proxy-server", "clusters/" + n.name, "--node-id", filepath.Base(dir), "--admin-socket", filepath.Join(dir, "admin.sock"),
		"--server", centralAddress, "--tls-name", "xdsd", "--secrets-dir", dir,
		"--tls-cert", s.at("tls.crt"), "--tls-key", s.at("tls.key"), "--tls-ca", s.at("ca.crt"),
		"--metrics-address", fmt.Sprintf("127.0.200.%d", 2+sites.Add(1)),
	}, more...)...)
}

func (n *tenant) reaches(t *testing.T, label string) {
	t.Helper()
	n.await(t, n.port, hello{sni: label + "." + n.domain}, n.backend)
}

// current waits until the Envoys of both tenants have acknowledged everything.
func (c *central) current(t *testing.T) {
	t.Helper()
	lab.Poll(t, "both Envoys to acknowledge everything", func() bool { return len(c.connected(t)) == 2 })
}

// connected is since when each Envoy is connected that has everything.
func (c *central) connected(t *testing.T) map[string]time.Time {
	t.Helper()
	since := map[string]time.Time{}
	state, _ := c.xdsd.state(t)
	for _, served := range state.Served {
		for _, e := range served.Envoys {
			if e.Current {
				since[e.ID] = e.Connected
			}
		}
	}
	return since
}

// secret is a volume with a certificate, its key and authorities, as a kubelet makes it:
// what the files are links to is replaced by a rename.
type secret struct {
	dir      string
	versions int
}

func newSecret(t *testing.T) *secret {
	t.Helper()
	s := &secret{dir: t.TempDir()}
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if err := os.Symlink(filepath.Join("..data", name), s.at(name)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *secret) at(name string) string { return filepath.Join(s.dir, name) }

// write puts in a certificate by an authority that is also the one that is believed.
func (s *secret) write(t *testing.T, ca *lab.CA, names ...string) {
	t.Helper()
	cert, key := ca.Issue(t, names...)
	s.put(t, cert, key, ca.PEM())
}

func (s *secret) put(t *testing.T, cert, key, authorities []byte) {
	t.Helper()
	s.versions++
	version := fmt.Sprintf("..%d", s.versions)
	if err := os.Mkdir(s.at(version), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": authorities} {
		if err := os.WriteFile(filepath.Join(s.at(version), name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(version, s.at("..new")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.at("..new"), s.at("..data")); err != nil {
		t.Fatal(err)
	}
}

// refuses starts an Envoy that is not to be served, and waits until either end tells why.
func (c *central) refuses(t *testing.T, n *tenant, s *secret, why string, more ...string) {
	t.Helper()
	dir := lab.TempDir(t)
	config := n.bootstrap(t, dir, s, more...)
	config.Unready = true
	said := c.xdsd.Log.Len()
	envoy := lab.NewEnvoy(t, config)
	lab.Poll(t, "Envoy to be refused: "+why, func() bool {
		return strings.Contains(envoy.Logs(), why) || strings.Contains(c.xdsd.Log.Since(said), why)
	})
	listeners, err := envoy.Listeners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.Collect(maps.Keys(listeners)); !slices.Equal(names, []string{"metrics"}) {
		t.Errorf("Envoy has the listeners %q", names)
	}
	if _, text := c.xdsd.state(t); strings.Contains(text, filepath.Base(dir)) {
		t.Errorf("xdsd serves Envoy: %s", text)
	}
}
