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

// TestRejectedListenerAndRulesWithoutBackend reads an Envoy with a listener whose port is in use, and with a route whose
// rules have a cluster, a redirect and a status code.
func TestRejectedListenerAndRulesWithoutBackend(t *testing.T) {
	used, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	lab.Must(t, err)
	t.Cleanup(func() { _ = used.Close() })
	port := netip.MustParseAddrPort(used.Addr().String()).Port()
	dir := lab.TempDir(t)
	write := func(name, format string, args ...any) {
		t.Helper()
		lab.Must(t, os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, format, args...), 0o600))
	}
	write("routes.yaml", `
resources:
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: port-80
  virtual_hosts:
  - name: ProxyServer a/b shop.example.com
    domains: [shop.example.com]
    routes:
    - {match: {prefix: /, headers: [{name: ":authority", string_match: {contains: ","}}]}, direct_response: {status: 400}}
    - {name: shop/0, match: {path_separated_prefix: /none}, direct_response: {status: 500}}
    - {name: shop/1, match: {path: /old}, redirect: {scheme_redirect: https}}
    - {name: shop/2, match: {prefix: /}, route: {cluster: shop}}
`)
	listener := func(name string, port uint16) string {
		return fmt.Sprintf(`
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: %s
  address: {socket_address: {address: 127.0.0.1, port_value: %d}}
  filter_chains:
  - name: http
    filters:
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: %[1]s
        rds: {route_config_name: port-80, config_source: {path_config_source: {path: %[3]s}}}
        http_filters:
        - {name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
`, name, port, filepath.Join(dir, "routes.yaml"))
	}
	write("listeners.yaml", "resources:%s%s", listener("port-80", 0), listener(fmt.Sprintf("port-%d", port), port))
	e := lab.NewEnvoy(t, lab.EnvoyConfig{Unready: true, Bootstrap: fmt.Appendf(nil, `
node: {id: a, cluster: b}
admin: {address: {pipe: {path: %[1]s/admin.sock, mode: 384}}}
dynamic_resources: {lds_config: {path_config_source: {path: %[1]s/listeners.yaml}}}
static_resources: {clusters: [{name: shop, type: STATIC}]}
`, dir)})
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
	want := map[string]string{"shop.example.com/none/*": "status 500", "shop.example.com/old": "redirect to https://(same host)", "shop.example.com/*": "shop"}
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
	dir := lab.TempDir(t)
	const chain = `
  - name: %s
    filters:
    - name: envoy.filters.network.tcp_proxy
      typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: a, cluster: %s}`
	const action = `{action: {name: chain, typed_config: {"@type": type.googleapis.com/google.protobuf.StringValue, value: %s}}}`
	text := fmt.Sprintf(`
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: port-443
  address: {socket_address: {address: 127.0.0.1, port_value: 0}}
  filter_chains:%s%s%s
  filter_chain_matcher:
    matcher_tree:
      input: {name: transport, typed_config: {"@type": type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.TransportProtocolInput}}
      exact_match_map:
        map:
          raw_buffer: %s
          tls:
            matcher:
              matcher_tree:
                input: {name: name, typed_config: {"@type": type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.ServerNameInput}}
                exact_match_map: {map: {a.example.com: %s}}
              on_no_match:
                matcher:
                  matcher_list:
                    matchers:
                    - predicate:
                        single_predicate:
                          input: {name: name, typed_config: {"@type": type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.ServerNameInput}}
                          value_match: {suffix: .example.com}
                      on_match: %s
`,
		fmt.Sprintf(chain, "ProxyServer a/b *.example.com", "wild"), fmt.Sprintf(chain, "Infra a/b a.example.com", "one"), fmt.Sprintf(chain, "not TLS", "plain"),
		fmt.Sprintf(action, "not TLS"), fmt.Sprintf(action, "Infra a/b a.example.com"), fmt.Sprintf(action, "ProxyServer a/b *.example.com"))
	lab.WriteFile(t, text, dir, "listeners.yaml")
	e := lab.NewEnvoy(t, lab.EnvoyConfig{Bootstrap: fmt.Appendf(nil, `
node: {id: a, cluster: b}
admin: {address: {pipe: {path: %[1]s/admin.sock, mode: 384}}}
dynamic_resources: {lds_config: {path_config_source: {path: %[1]s/listeners.yaml}}}
static_resources: {clusters: [{name: wild, type: STATIC}, {name: one, type: STATIC}, {name: plain, type: STATIC}]}
`, dir)})
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
