package envoy_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/densityops/oooi/kubectl-oooi/internal/envoy"
	"github.com/densityops/oooi/test/lab"
)

// start starts an Envoy with a file of listeners in testdata, and other files. DIR and PORT stand for their directory, and for a port.
func start(t *testing.T, port uint16, listeners string, others ...string) *lab.Envoy {
	t.Helper()
	dir := lab.TempDir(t)
	expanded := func(name string) string {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		lab.Must(t, err)
		return strings.NewReplacer("$DIR", dir, "$PORT", fmt.Sprint(port)).Replace(string(text))
	}
	for _, name := range others {
		lab.WriteFile(t, expanded(name), dir, name)
	}
	lab.WriteFile(t, expanded(listeners), dir, "listeners.yaml")
	return lab.NewEnvoy(t, lab.EnvoyConfig{Unready: len(others) > 0, Bootstrap: []byte(expanded("bootstrap.yaml"))})
}

// TestRejectedListenerAndRulesWithoutBackend reads an Envoy with a listener whose port is in use, and with a route whose
// rules have a cluster, a redirect and a status code.
func TestRejectedListenerAndRulesWithoutBackend(t *testing.T) {
	used, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	lab.Must(t, err)
	t.Cleanup(func() { _ = used.Close() })
	port := netip.MustParseAddrPort(used.Addr().String()).Port()
	e := start(t, port, "listeners.yaml", "routes.yaml")
	var listeners envoy.Listeners
	lab.Poll(t, "Envoy to read both listeners", func() bool {
		lab.Must(t, listeners.Read(t.Context(), e.Get))
		return len(listeners.Listeners) == 2
	})
	found := false
	for _, l := range listeners.Listeners {
		if l.Name != "port-80" {
			found = true
			if l.Port != port || l.State != "rejected" || !strings.Contains(l.Error, "in use") {
				t.Errorf("the listener of port %d is %+v", port, l)
			}
		} else if l.State == "rejected" {
			t.Errorf("the other listener is %+v", l)
		}
	}
	if !found {
		t.Errorf("listeners: %+v", listeners.Listeners)
	}
	want := map[string]string{
		"shop.example.com/none/*": "status 500", "shop.example.com/old": "redirect to https://(same host)", "shop.example.com/*": "shop",
		"shop.example.com/v": "redirect to http://(same host)/new", "shop.example.com/a/*": "redirect to http://a.example.com:81/b/*",
		"shop.example.com/b/*": "redirect to http://(same host)/*", "shop.example.com/c GET x=1 y=2 ?page=1 ?size=10": "status 500",
	}
	var routes envoy.Routes
	lab.Poll(t, "Envoy to read the routes", func() bool {
		lab.Must(t, routes.Read(t.Context(), e.Get))
		return len(routes.Routes) >= len(want)
	})
	for _, r := range routes.Routes {
		if want[r.Name] != r.Cluster {
			t.Errorf("route %+v", r)
		}
	}
	if len(routes.Routes) != len(want) {
		t.Errorf("%d routes, want %d", len(routes.Routes), len(want))
	}
}

// TestFilterChainsOfMatcher reads an Envoy whose listener selects filter chains with a matcher, as xdsd configures it.
func TestFilterChainsOfMatcher(t *testing.T) {
	e := start(t, 0, "matcher.yaml")
	var listeners envoy.Listeners
	lab.Must(t, listeners.Read(t.Context(), e.Get))
	want := []envoy.FilterChain{
		{Name: "ProxyServer a/b *.example.com", ServerNames: []string{"*.example.com"}, TransportProtocol: "tls", Cluster: "wild"},
		{Name: "Infra a/b a.example.com", ServerNames: []string{"a.example.com"}, TransportProtocol: "tls", Cluster: "one"},
		{Name: "not TLS", TransportProtocol: "raw_buffer", Cluster: "plain"},
	}
	if got := listeners.Listeners[0].FilterChains; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
