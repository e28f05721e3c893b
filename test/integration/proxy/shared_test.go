package proxy_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// tenant is a ProxyServer on a port of its own. The tenants share an xdsd.
type tenant struct {
	*site
	port    int
	backend string // its certificate is valid for all names in the domain
}

// object returns the ProxyServer with backends for labels in its domain.
func (n *tenant) object(labels ...string) string {
	var backends []string
	for _, label := range labels {
		backends = append(backends, strings.Replace(n.site.backend(label, label+"."+n.domain, "backend", ""), "port: 443", fmt.Sprintf("port: %d", n.port), 1))
	}
	return strings.Replace(n.proxyServer(backends...), "infraRef: {name: "+n.name+"}", "", 1)
}

func (n *tenant) awaitBackend(t *testing.T, label string) {
	t.Helper()
	n.await(t, n.port, hello{sni: label + "." + n.domain}, n.backend)
}

func TestOneXdsdServesEachEnvoyItsOwnProxyServer(t *testing.T) {
	socket := filepath.Join(lab.TempDir(t), "xds.sock")
	flags := []string{"--socket", socket}
	var tenants []*tenant
	for i := range 2 {
		n := &tenant{site: newSite(t), port: 1443 + 1000*i}
		n.backend = n.name + "-backend"
		b := n.ca.TLSBackend(t, n.at(21, 443), n.backend, "*."+n.domain)
		n.update(t, namespaces("clusters", "apps-"+n.name)+service("apps-"+n.name, "backend", 443, b.Addr())+n.object("one"))
		tenants = append(tenants, n)
		flags = append(flags, "--proxy-server", "clusters/"+n.name)
	}
	const host = "127.0.200.1"
	xdsd := newDaemon(t, host+":9902", append(flags, "--kubeconfig", tenants[0].cp.Kubeconfig())...)
	xdsd.Start(t)
	for i, n := range tenants {
		n.envoy = lab.NewEnvoy(t, bootstrap(t, "--proxy-server", "clusters/"+n.name, "--node-id", n.name, "--socket", socket,
			"--admin-socket", filepath.Join(n.dir, "admin.sock"), "--metrics-address", fmt.Sprintf("127.0.200.%d", 2+i)))
	}
	listeners := func(n *tenant) []string {
		t.Helper()
		found, err := n.envoy.Listeners(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(found))
	}
	for _, n := range tenants {
		n.awaitBackend(t, "one")
		if got, want := listeners(n), []string{"health", "metrics", fmt.Sprint("port-", n.port)}; !slices.Equal(got, want) {
			t.Errorf("the Envoy of %s has listeners %q, want %q", n.name, got, want)
		}
	}

	one, two := tenants[0], tenants[1]
	st := two.startStream(t, two.port, hello{sni: "one." + two.domain}, two.backend)
	one.update(t, one.object("one", "two"))
	one.awaitBackend(t, "two")
	one.remove(t, one.object("one", "two"))
	two.update(t, two.object("one", "two"))
	two.awaitBackend(t, "two")
	one.awaitBackend(t, "two") // a ProxyServer that disappears is served on
	state, _ := xdsd.state(t)
	if len(state.ProxyServers) != len(tenants) {
		t.Errorf("xdsd serves %d ProxyServers after one was deleted, want %d", len(state.ProxyServers), len(tenants))
	}
	st.awaitTicks(t, 100)
	st.end(t)
}
