package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// controlPlane starts the backends of a hosted cluster, each with a certificate only for its own names, and
// creates their Services and Routes.
func (s *site) controlPlane(t *testing.T) *apiServer {
	t.Helper()
	under := func(labels ...string) []string {
		for i, label := range labels {
			labels[i] = label + "." + s.domain
		}
		return labels
	}
	kas := newAPIServer(t, s, s.at(11, 6443), append([]string{"kube-apiserver", "kubernetes", "kubernetes.default.svc"}, under("api", "api-int")...)...)
	oauth := s.ca.TLSBackend(t, s.at(12, 6443), append([]string{"oauth-openshift"}, under("oauth", "oauth-openshift.apps")...)...)
	ignition := s.ca.TLSBackend(t, s.at(13, 8443), append([]string{"ignition-server-proxy", s.routeHost("ignition-server")}, under("ignition")...)...)
	konnectivity := s.ca.TLSBackend(t, s.at6(14, 8091), append([]string{"konnectivity-server"}, under("konnectivity")...)...)
	metrics := s.ca.TLSBackend(t, s.at(15, 9443), "metrics-proxy", s.routeHost("metrics-proxy"))
	registry := s.ca.TLSBackend(t, s.at(16, 5000), "registry", s.routeHost("registry"))
	s.ca.TLSBackend(t, s.at(40, 443), append([]string{"apps"}, under("*.apps", "a.b.apps", "console-openshift-console")...)...)
	lab.HTTPBackend(t, s.at(40, 80), "apps-http")

	ns := s.namespace()
	s.update(t, s.objects()+
		service(ns, "kube-apiserver", 6443, netip.MustParseAddrPort(s.at(11, 6443)))+
		service(ns, "oauth-openshift", 6443, oauth.Addr())+
		service(ns, "ignition-server-proxy", 443, ignition.Addr())+
		service(ns, "konnectivity-server", 8091, konnectivity.Addr())+
		service(ns, "metrics-proxy", 443, metrics.Addr())+
		service(ns, "registry", 443, registry.Addr())+
		s.route("ignition-server", "ignition-server-proxy")+
		s.route("metrics-proxy", "metrics-proxy")+
		s.route("registry", "registry")+
		s.route("orphan", "missing"))
	return kas
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
	in := func(label string) hello { return hello{sni: label + "." + s.domain} }
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
		{"an unknown name on konnectivity's port", 8091, hello{sni: "unknown.example.org", verify: "konnectivity." + s.domain}, konnectivity},
		{"the apps domain itself", 443, hello{sni: "apps." + s.domain, verify: "kubernetes"}, kas},
		{"no name", 443, none, kas},
		{"no name on the API server's port", 6443, none, kas},
		{"an address of IPv6 for a name", 443, hello{sni: "2001:db8::1", verify: "kubernetes"}, kas}, // invalid as SNI (RFC 6066)
		{"upper case", 443, hello{sni: strings.ToUpper(s.routeHost("registry"))}, "registry"},
		{"upper case below a wildcard", 443, hello{sni: strings.ToUpper("shop.apps." + s.domain)}, "apps"},
		{"a ClientHello in two halves, a second apart", 443, hello{sni: s.routeHost("registry"), split: true}, "registry"},
		{"a ClientHello of 15 KiB", 443, hello{sni: s.routeHost("registry"), large: true}, "registry"},
		{"a ClientHello of 15 KiB in two halves", 443, hello{sni: "oauth." + s.domain, large: true, split: true}, oauth},
	}
}

// check checks the whole route table.
func (s *site) check(t *testing.T) {
	t.Helper()
	for _, r := range s.table() {
		if name, err := s.reach(t, r.port, r.hello); err != nil || name != r.want {
			t.Errorf("%s (%q on port %d) leads to %q, want %s: %v", r.name, r.sni, r.port, name, r.want, err)
		}
	}
}

func TestEachNameLeadsToItsBackend(t *testing.T) {
	s := newSite(t)
	kas := s.controlPlane(t)
	s.start(t)
	for _, r := range s.table() {
		t.Run(r.name, func(t *testing.T) {
			for _, address := range []string{s.at(3, r.port), s.at6(3, r.port)} {
				conn, name, err := s.dial(t.Context(), address, r.hello)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				if name != r.want {
					t.Errorf("%s leads to %s, want %s", address, name, r.want)
				}
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		for _, port := range []int{443, 6443} {
			conn, err := net.Dial("tcp", s.at(3, port))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := fmt.Fprint(conn, "hello?\n"); err != nil {
				t.Fatal(err)
			}
			if name, err := lab.Greeting(t.Context(), conn); err != nil || name != "kube-apiserver" {
				t.Errorf("port %d leads to %q: %v", port, name, err)
			}
		}
	})
	t.Run("a Route without a Service", func(t *testing.T) {
		kas.names()
		host := s.routeHost("orphan")
		for range 5 {
			if name, err := s.reach(t, 443, hello{sni: host, verify: "kubernetes"}); err == nil {
				t.Errorf("%s leads to %s", host, name)
			} else if !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the connection is not closed: %v", err)
			}
		}
		if asked := kas.names(); slices.Contains(asked, host) {
			t.Errorf("the API server received connections for %q", asked)
		}
	})
	t.Run("a certificate of another backend", func(t *testing.T) {
		if name, err := s.reach(t, 443, hello{sni: "oauth." + s.domain, verify: "api." + s.domain}); err == nil {
			t.Errorf("the certificate of %s is accepted for the API server", name)
		}
	})
}

func TestRequestsOnPort80LeadToTheApps(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.start(t)
	for _, test := range []struct {
		name, host string
		want       int
	}{
		{"an application", "shop.apps." + s.domain, http.StatusOK},
		{"two labels deep", "a.b.apps." + s.domain, http.StatusOK},
		{"with a port", "shop.apps." + s.domain + ":80", http.StatusOK},
		{"with another port", "shop.apps." + s.domain + ":8080", http.StatusOK},
		{"upper case", "SHOP.apps." + s.domain, http.StatusOK},
		{"the console", "console-openshift-console." + s.domain, http.StatusOK},
		{"the apps domain itself", "apps." + s.domain, http.StatusNotFound},
		{"the API server", "api." + s.domain, http.StatusNotFound},
		{"an unknown host", "unknown.example.org", http.StatusNotFound},
		{"an address", s.ip(3), http.StatusNotFound},
		{"two Host headers", "unknown.example.org\r\nHost: shop.apps." + s.domain, http.StatusBadRequest},
		{"two names in a Host header", "unknown.example.org,shop.apps." + s.domain, http.StatusBadRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, address := range []string{s.at(3, 80), s.at6(3, 80)} {
				status, body := request(t, address, test.host, "")
				if status != test.want {
					t.Fatalf("%s: status %d: %s", address, status, body)
				}
				want := fmt.Sprintf("apps-http\nGET\n%s\n/path\n", strings.Split(test.host, ":")[0])
				if status == http.StatusOK && body != want {
					t.Errorf("%s: %q, want %q", address, body, want)
				}
			}
		})
	}
	t.Run("a websocket", func(t *testing.T) {
		status, echo := request(t, s.at(3, 80), "shop.apps."+s.domain, "websocket")
		if status != http.StatusSwitchingProtocols || echo != "apps-http\nping" {
			t.Errorf("status %d, %q", status, echo)
		}
	})
}

// request sends an HTTP request and returns the response. With an upgrade it sends "ping", and returns the
// data that follows.
func request(t *testing.T, address, host, upgrade string) (status int, body string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		t.Fatal(err)
	}
	extra := ""
	if upgrade != "" {
		extra = "Connection: Upgrade\r\nUpgrade: " + upgrade + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, "GET /path HTTP/1.1\r\nHost: %s\r\n%s\r\n", host, extra); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusSwitchingProtocols {
		if _, err := fmt.Fprint(conn, "ping"); err != nil {
			t.Fatal(err)
		}
		echo := make([]byte, len("apps-http\nping"))
		_, err := io.ReadFull(in, echo)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(echo)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}
