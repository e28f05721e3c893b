package proxy_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// controlPlane starts the backends of a hosted cluster, each with a certificate only for its own names, and
// creates their Services and Routes.
func (s *site) controlPlane(t *testing.T) {
	t.Helper()
	under := func(labels ...string) []string {
		for i, label := range labels {
			labels[i] = label + "." + s.Domain()
		}
		return labels
	}
	kas := s.ca.TLSBackend(t, s.at(11, 6443), append([]string{"kube-apiserver", "kubernetes", "kubernetes.default.svc"}, under("api", "api-int")...)...)
	oauth := s.ca.TLSBackend(t, s.at(12, 6443), append([]string{"oauth-openshift"}, under("oauth", "oauth-openshift.apps")...)...)
	ignition := s.ca.TLSBackend(t, s.at(13, 8443), append([]string{"ignition-server-proxy", s.routeHost("ignition-server")}, under("ignition")...)...)
	konnectivity := s.ca.TLSBackend(t, s.at6(14, 8091), append([]string{"konnectivity-server"}, under("konnectivity")...)...)
	metrics := s.ca.TLSBackend(t, s.at(15, 9443), "metrics-proxy", s.routeHost("metrics-proxy"))
	registry := s.ca.TLSBackend(t, s.at(16, 5000), "registry", s.routeHost("registry"))
	s.ca.TLSBackend(t, s.at(40, 443), append([]string{"apps"}, under("*.apps", "a.b.apps", "console-openshift-console")...)...)
	lab.HTTPBackend(t, s.at(40, 80), "apps-http")

	ns := s.ControlPlaneNamespace()
	s.update(t, s.objects()+
		service(ns, "kube-apiserver", 6443, kas.Addr())+
		service(ns, "oauth-openshift", 6443, oauth.Addr())+
		service(ns, "ignition-server-proxy", 443, ignition.Addr())+
		service(ns, "konnectivity-server", 8091, konnectivity.Addr())+
		service(ns, "metrics-proxy", 443, metrics.Addr())+
		service(ns, "registry", 443, registry.Addr())+
		s.route("ignition-server", "ignition-server-proxy")+
		s.route("metrics-proxy", "metrics-proxy")+
		s.route("registry", "registry")+
		s.route("orphan", "missing"))
}

// row is a line of the route table: a connection with this ClientHello to that port reaches the backend want.
type row struct {
	name string
	port int
	hello
	want string
}

// table returns the route table of a hosted cluster.
func (s *site) table() []row {
	in := func(label string) hello { return hello{sni: label + "." + s.Domain()} }
	// Unknown names lead to the API server.
	unknown, none := hello{sni: "unknown.example.org", verify: "kubernetes"}, hello{verify: "kubernetes"}
	const kas, oauth, ignition, konnectivity = "kube-apiserver", "oauth-openshift", "ignition-server-proxy", "konnectivity-server"
	return []row{
		{"the API server", 6443, in("api"), kas},
		{"the internal name of the API server", 6443, in("api-int"), kas},
		{"the API server on the port of Routes", 443, in("api"), kas},
		{"the internal name of the API server on the port of Routes", 443, in("api-int"), kas},
		{"the API server by its cluster name", 443, hello{sni: "kubernetes.default.svc"}, kas},
		{"the API server by its cluster name on its own port", 6443, hello{sni: "kubernetes.default.svc"}, kas},
		{"OAuth", 443, in("oauth"), oauth},
		{"OAuth on the API server's port", 6443, in("oauth"), oauth},
		{"OAuth within the apps domain", 443, in("oauth-openshift.apps"), oauth},
		{"ignition", 443, in("ignition"), ignition},
		{"ignition by its Route", 443, hello{sni: s.routeHost("ignition-server")}, ignition},
		{"konnectivity", 8091, in("konnectivity"), konnectivity},
		{"konnectivity on the port of Routes", 443, in("konnectivity"), konnectivity},
		{"the metrics proxy by its Route", 443, hello{sni: s.routeHost("metrics-proxy")}, "metrics-proxy"},
		{"another Route", 443, hello{sni: s.routeHost("registry")}, "registry"},
		{"an application", 443, in("shop.apps"), "apps"},
		{"an application two labels deep", 443, in("a.b.apps"), "apps"},
		{"the console", 443, in("console-openshift-console"), "apps"},
		{"an unknown name", 443, unknown, kas},
		{"an unknown name on the API server's port", 6443, unknown, kas},
		{"an unknown name on konnectivity's port", 8091, hello{sni: "unknown.example.org", verify: s.in("konnectivity")}, konnectivity},
		{"the apps domain itself", 443, hello{sni: s.in("apps"), verify: "kubernetes"}, kas},
		{"no name", 443, none, kas},
		{"no name on the API server's port", 6443, none, kas},
		{"IPv6 address as SNI", 443, hello{sni: "2001:db8::1", verify: "kubernetes"}, kas}, // invalid as SNI (RFC 6066)
		{"upper case", 443, hello{sni: strings.ToUpper(s.routeHost("registry"))}, "registry"},
		{"upper case below a wildcard", 443, hello{sni: strings.ToUpper(s.in("shop.apps"))}, "apps"},
		{"a ClientHello in two halves", 443, hello{sni: s.routeHost("registry"), split: true}, "registry"},
		{"a ClientHello of 15 KiB", 443, hello{sni: s.routeHost("registry"), large: true}, "registry"},
		{"a ClientHello of 15 KiB in two halves", 443, hello{sni: s.in("oauth"), large: true, split: true}, oauth},
	}
}

// check checks the route table.
func (s *site) check(t *testing.T) {
	t.Helper()
	for _, r := range s.table() {
		if name, err := s.reach(t, r.port, r.hello); err != nil || name != r.want {
			t.Errorf("%s (%q on port %d) leads to %q, want %s: %v", r.name, r.sni, r.port, name, r.want, err)
		}
	}
}

// TestEachNameLeadsToItsBackend tests routes, metrics, listeners, sockets and the admin interface, which does not change the site.
func TestEachNameLeadsToItsBackend(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.start(t)
	t.Run("traffic by name", s.testTrafficByName)
	for _, r := range s.table() {
		t.Run(r.name, func(t *testing.T) {
			for _, address := range []string{s.at(3, r.port), s.at6(3, r.port)} {
				conn, name, err := s.dial(t.Context(), address, r.hello)
				lab.Must(t, err)
				defer func() { _ = conn.Close() }()
				if name != r.want {
					t.Errorf("%s leads to %s, want %s", address, name, r.want)
				}
			}
		})
	}
	t.Run("port 80", s.testPort80)
	t.Run("listeners", s.testListeners)
	t.Run("sockets", func(t *testing.T) {
		for _, name := range []string{"xds.sock", "admin.sock"} {
			if info, err := os.Stat(filepath.Join(s.dir, name)); err != nil || info.Mode() != fs.ModeSocket|0o600 {
				t.Errorf("%s: %v, %v; want a socket of the owner only", name, info, err)
			}
		}
	})
	t.Run("admin pages", s.testAdminPages)
}

// testPort80 requests the apps by HTTP. Any other host has no route.
func (s *site) testPort80(t *testing.T) {
	for host, want := range map[string]int{
		s.in("a.b.apps"): http.StatusOK, s.in("console-openshift-console"): http.StatusOK, strings.ToUpper(s.in("shop.apps")) + ":8080": http.StatusOK,
		s.in("apps"): http.StatusNotFound, s.in("api"): http.StatusNotFound, s.IP(3): http.StatusNotFound,
		"unknown.example.org\r\nHost: " + s.in("shop.apps"): http.StatusBadRequest,
	} {
		for _, address := range []string{s.at(3, 80), s.at6(3, 80)} {
			status, body := request(t, address, "GET", host, "/path")
			name, _, _ := strings.Cut(host, ":")
			if status != want || status == http.StatusOK && body != fmt.Sprintf("apps-http\nGET\n%s\n/path\n", name) {
				t.Errorf("%q at %s: status %d, %q, want %d", host, address, status, body, want)
			}
		}
	}
	// A websocket.
	conn := dialFrom(t, "", s.at(3, 80))
	_, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nping", s.in("shop.apps"))
	text := make([]byte, 0, 1<<10)
	for err == nil && !strings.HasSuffix(string(text), "\r\n\r\napps-http\nping") {
		var n int
		n, err = conn.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
	}
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 101 ") {
		t.Errorf("a websocket: %q, %v", text, err)
	}
}

// testListeners checks that the VLAN reaches the service ports only.
func (s *site) testListeners(t *testing.T) {
	var vlan []string
	for line := range strings.Lines((*lab.Namespace)(nil).Run(t, "ss", "-Hltn")) {
		l, err := netip.ParseAddrPort(strings.Fields(line)[3])
		if err != nil || l.Addr().IsUnspecified() {
			t.Errorf("a socket listens on all addresses, including VLAN addresses: %s", line)
		}
		if l.Addr() == netip.MustParseAddr(s.IP(3)) || l.Addr() == netip.MustParseAddr(s.net6+"3") {
			vlan = append(vlan, l.String())
		}
	}
	var want []string
	for _, port := range []int{80, 443, 6443, 8091} {
		want = append(want, s.at(3, port), s.at6(3, port))
	}
	slices.Sort(vlan)
	slices.Sort(want)
	// Envoy has a socket for each of its threads.
	if got := slices.Compact(vlan); !slices.Equal(got, want) {
		t.Errorf("listeners on the VLAN: %q, want %q", got, want)
	}
}
