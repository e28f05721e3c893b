package proxy_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// httpServer starts an HTTP server on an address, and returns that.
func httpServer(t *testing.T, address string, handler http.HandlerFunc) netip.AddrPort {
	t.Helper()
	lab.ServeHTTP(t, address, handler)
	return netip.MustParseAddrPort(address)
}

// TestHTTPRoutes sends requests to HTTP backends on port 80, which the Infra's apps also use, and on a separate port.
func TestHTTPRoutes(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	s.infra.proxy = ", accessLog: true"
	var failures, calls, slowCalls atomic.Int32
	named := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, name) }
	}
	one, two := httpServer(t, s.at(21, 8080), named("one")), httpServer(t, s.at(22, 8080), named("two"))
	flaky := httpServer(t, s.at(23, 8080), func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		if failures.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprint(w, "flaky")
	})
	slow := httpServer(t, s.at(24, 8080), func(w http.ResponseWriter, r *http.Request) {
		slowCalls.Add(1)
		<-r.Context().Done()
		_, _ = fmt.Fprint(w, "slow")
	})
	ns := "apps-" + s.name
	rules := `, http: {rules: [
  {},
  {matches: [{path: {value: /api}}], backendRefs: [{name: two, port: 8080}]},
  {matches: [{path: {value: /api}, headers: [{name: X-Version, value: v1}]}], backendRefs: [{name: one, port: 8080}]},
  {matches: [{path: {type: Exact, value: /api/exact}}], backendRefs: [{name: one, port: 8080}]},
  {matches: [{path: {value: /api/deep}}, {path: {value: /post}, method: POST}], backendRefs: [{name: one, port: 8080}]},
  {matches: [{path: {value: /split}}], backendRefs: [{name: one, port: 8080, weight: 3}, {name: two, port: 8080, weight: 1}, {name: slow, port: 8080, weight: 0}]},
  {matches: [{path: {value: /none}}], backendRefs: [{name: one, port: 8080, weight: 0}]},
  {matches: [{path: {value: /gone}}], backendRefs: [{name: missing, port: 8080}]},
  {matches: [{path: {value: /retry}}], backendRefs: [{name: flaky, port: 8080}], retry: {codes: [503], attempts: 3, backoff: 1ms}},
  {matches: [{path: {value: /fail}}], backendRefs: [{name: flaky, port: 8080}]},
  {matches: [{path: {value: /slow}}], backendRefs: [{name: slow, port: 8080}], timeouts: {request: 200ms}},
  {matches: [{path: {value: /moved}}], filters: [{type: RequestRedirect, requestRedirect: {hostname: new.example.com, port: 8443, scheme: https, statusCode: 308}}]},
]}`
	// Conditions and redirects by queries and paths.
	conditions := `, http: {rules: [
  {},
  {matches: [{path: {value: /q}, queryParams: [{name: page, value: "1"}, {name: Size, value: "10"}]}],
   backendRefs: [{name: two, port: 8080}]},
  {matches: [{path: {value: /q}, queryParams: [{name: text, value: a b}]}], backendRefs: [{name: flaky, port: 8080}]},
  {matches: [{path: {value: /q}, queryParams: [{name: text, value: "a%20b"}]}], backendRefs: [{name: two, port: 8080}]},
  {matches: [{path: {value: /full}}], filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: "/%2Fto/"}}}]},
  {matches: [{path: {value: /from}}], filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /to/}}}]},
  {matches: [{path: {value: /up.x}}], filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: ""}}}]},
  {matches: [{path: {value: /each}}], backendRefs: [{name: slow, port: 8080}], timeouts: {backendRequest: 100ms}},
  {matches: [{path: {value: /tries}}], backendRefs: [{name: slow, port: 8080}], timeouts: {request: 0s, backendRequest: 100ms}, retry: {attempts: 2, backoff: 1ms}},
]}`
	backend := func(name, host string, port int, more string) string {
		return fmt.Sprintf("{name: %s, hostname: %q, port: %d, protocol: HTTP, targetNamespace: %s%s}", name, host, port, ns, more)
	}
	const target = ", targetService: one, targetPort: 8080"
	redirect := func(to string) string {
		return ", http: {rules: [{filters: [{type: RequestRedirect, requestRedirect: {" + to + "}}]}]}"
	}
	s.update(t, s.infraYAML(), service(ns, "one", 8080, one), service(ns, "two", 8080, two), service(ns, "flaky", 8080, flaky), service(ns, "slow", 8080, slow),
		s.proxyServer(
			backend("web", s.in("web"), 80, target+rules),
			backend("deep", s.in("*.web"), 80, target),
			backend("more", s.in("more"), 80, target+conditions),
			backend("other", s.in("web"), 8080, redirect("hostname: moved.example.com")),
			backend("root", s.in("root"), 80, redirect("path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}")),
			backend("secure", "*", 80, redirect("scheme: https, statusCode: 301"))))
	s.start(t)

	host, more := s.in("web"), s.in("more")
	fetch := func(port int, method, host, path string, headers ...string) (status int, body string) {
		t.Helper()
		return request(t, s.at(3, port), method, host, path, headers...)
	}
	for _, test := range []struct {
		name    string
		port    int
		method  string
		host    string
		path    string
		headers []string
		status  int
		body    string
	}{
		{"the Service of the backend", 80, "GET", host, "/", nil, 200, "one"},
		{"a prefix", 80, "GET", host, "/api/users?q=/x", nil, 200, "two"},
		{"the prefix itself", 80, "GET", host, "/api", nil, 200, "two"},
		{"a prefix of whole elements only", 80, "GET", host, "/apis", nil, 200, "one"},
		{"a header", 80, "GET", host, "/api", []string{"x-version: v1"}, 200, "one"},
		{"another value", 80, "GET", host, "/api", []string{"x-version: v10"}, 200, "two"},
		{"an exact path", 80, "GET", host, "/api/exact", nil, 200, "one"},
		{"below an exact path", 80, "GET", host, "/api/exact/more", nil, 200, "two"},
		{"a longer prefix beats a header", 80, "GET", host, "/api/deep/x", []string{"x-version: v1"}, 200, "one"},
		{"a method", 80, "POST", host, "/post", nil, 200, "one"},
		{"a name below a wildcard", 80, "GET", s.in("a.web"), "/api", nil, 200, "one"},
		{"no weight", 80, "GET", host, "/none", nil, 500, ""},
		{"a Service that does not exist", 80, "GET", host, "/gone", nil, 503, "no healthy upstream"},
		{"a timeout", 80, "GET", host, "/slow", nil, 504, "upstream request timeout"},
		{"a redirect", 80, "GET", host, "/moved/x?y=z", nil, 308, "https://new.example.com:8443/moved/x?y=z"},
		{"a redirect to https of all other names", 80, "GET", "any.example.com", "/x?y", nil, 301, "https://any.example.com/x?y"},
		{"a redirect on another port", 8080, "GET", host, "/x", nil, 302, "http://moved.example.com:8080/x"},
		{"no route on another port", 8080, "GET", "any.example.com", "/", nil, 404, ""},
		{"query parameters", 80, "GET", more, "/q?Size=10&page=1", nil, 200, "two"},
		{"one of two query parameters", 80, "GET", more, "/q?page=1", nil, 200, "one"},
		{"a query parameter in lower case", 80, "GET", more, "/q?page=1&size=10", nil, 200, "one"},
		{"the first value of a query parameter", 80, "GET", more, "/q?page=2&page=1&Size=10", nil, 200, "one"},
		{"another value of a query parameter", 80, "GET", more, "/q?page=1&Size=10x", nil, 200, "one"},
		{"a query parameter as in the request", 80, "GET", more, "/q?text=a%20b", nil, 200, "two"},
		{"a redirect to a path", 80, "GET", more, "/full/x?y=z", nil, 302, "http://" + more + "/%2Fto/?y=z"},
		{"a redirect of a prefix", 80, "GET", more, "/from/x?y=z", nil, 302, "http://" + more + "/to/x?y=z"},
		{"a redirect of exactly the prefix", 80, "GET", more, "/from", nil, 302, "http://" + more + "/to"},
		{"a redirect of a prefix with a slash", 80, "GET", more, "/from/", nil, 302, "http://" + more + "/to/"},
		{"a redirect to the root", 80, "GET", more, "/up.x/y?z", nil, 302, "http://" + more + "/y?z"},
		{"a redirect of exactly the prefix to the root", 80, "GET", more, "/up.x", nil, 302, "http://" + more + "/"},
		{"a redirect of all paths", 80, "GET", s.in("root"), "/x", nil, 302, "http://" + s.in("root") + "/new/x"},
		{"a timeout of the backend", 80, "GET", more, "/each", nil, 504, "upstream request timeout"},
		{"apps on the same port", 80, "GET", s.in("shop.apps"), "/x", nil, 200, "apps-http\nGET\nshop.apps." + s.Domain() + "\n/x\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, body := fetch(test.port, test.method, test.host, test.path, test.headers...)
			if status != test.status || body != test.body {
				t.Errorf("%d %q, want %d %q", status, body, test.status, test.body)
			}
		})
	}
	t.Run("weights", func(t *testing.T) {
		got := map[string]int{}
		for range 200 {
			_, body := fetch(80, "GET", host, "/split")
			got[body]++
		}
		// With a share of 3/4, fewer than 110 or more than 190 of 200 are less likely than 1 in a billion.
		if got["one"]+got["two"] != 200 || got["one"] < 110 || got["one"] > 190 {
			t.Errorf("responses %v", got)
		}
	})
	t.Run("retries of timeouts", func(t *testing.T) {
		slowCalls.Store(0)
		if status, _ := fetch(80, "GET", more, "/tries"); status != 504 || slowCalls.Load() != 3 {
			t.Errorf("%d after %d calls, want 504 after 3", status, slowCalls.Load())
		}
	})
	t.Run("retries", func(t *testing.T) {
		for _, c := range []struct {
			path     string
			failures int32
			status   int
			calls    int32
		}{{"/retry", 2, 200, 3}, {"/retry", 10, 503, 4}, {"/fail", 1, 503, 1}} {
			failures.Store(c.failures)
			calls.Store(0)
			if status, _ := fetch(80, "GET", host, c.path); status != c.status || calls.Load() != c.calls {
				t.Errorf("%s with %d failures: %d after %d calls, want %d after %d", c.path, c.failures, status, calls.Load(), c.status, c.calls)
			}
		}
		failures.Store(0)
	})
	lab.Poll(t, "the rule in the access log", func() bool { // which xdsd enables after the start
		fetch(80, "GET", host, "/api")
		fetch(80, "GET", s.in("a.web"), "/")
		return strings.Contains(s.envoy.Log.String(), `"rule":"web/1"`) && strings.Contains(s.envoy.Log.String(), `"rule":null`)
	})
	lab.Poll(t, "the listeners to be ready in status", func() bool {
		all := s.replica(t).Listeners
		return slices.Contains(all, v1alpha1.ListenerStatus{Port: 80, Ready: true}) && slices.Contains(all, v1alpha1.ListenerStatus{Port: 8080, Ready: true})
	})

	// A change to rules closes no connection.
	conn := dialFrom(t, "", s.at(3, 80))
	if _, body := exchange(t, conn, "GET", host, "/api"); body != "two" {
		t.Errorf("response %q", body)
	}
	s.update(t, s.proxyServer(backend("web", host, 80, target)))
	lab.Poll(t, "the connection to use the new routes", func() bool { _, body := exchange(t, conn, "GET", host, "/api"); return body == "one" })
}
