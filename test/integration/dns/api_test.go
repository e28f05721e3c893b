package dns_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/test/lab"
)

// countingProxy is a proxy to an API server that counts list and watch requests.
type countingProxy struct {
	kubeconfig string

	mu       sync.Mutex
	requests map[string]int // "list services", "watch secrets", ...
}

// newCountingProxy starts a proxy that sends all requests with the credentials of config.
func newCountingProxy(t *testing.T, config *rest.Config) *countingProxy {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	n := &countingProxy{requests: map[string]int{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // a watch is a response without an end
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb := "list"
		if r.URL.Query().Get("watch") == "true" {
			verb = "watch"
		}
		n.mu.Lock()
		n.requests[verb+" "+path.Base(r.URL.Path)]++
		n.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	n.kubeconfig = kubeconfigFor(t, server.URL)
	return n
}

// count returns the number of requests such as "list services".
func (n *countingProxy) count(request string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests[request]
}

// String lists the requests so far.
func (n *countingProxy) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var counts []string
	for _, request := range slices.Sorted(maps.Keys(n.requests)) {
		counts = append(counts, fmt.Sprintf("%d %s", n.requests[request], request))
	}
	return strings.Join(counts, ", ")
}

// watches are the numbers of open watches of an API server by resource.
type watches map[string]int

// watchesOf returns the open watches of the resources that this project's stores watch.
func watchesOf(t *testing.T, cp *lab.ControlPlane) watches {
	t.Helper()
	client, err := rest.HTTPClientFor(cp.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	status, page := get(t, client, cp.ServerURL()+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("metrics of the API server: status %d: %s", status, page)
	}
	open := watches{}
	for _, resource := range []string{"hostedclusters", "infras", "routes", "services", "secrets"} {
		open[resource] = int(sum(t, page, "apiserver_longrunning_requests", `verb="WATCH"`, fmt.Sprintf("resource=%q", resource)))
	}
	return open
}

// stableWatches returns the open watches when their numbers have not changed for a second, because the
// watches of killed processes close after a delay.
func stableWatches(t *testing.T, cp *lab.ControlPlane) watches {
	t.Helper()
	open := watchesOf(t, cp)
	for since := time.Now(); time.Since(since) < time.Second; time.Sleep(100 * time.Millisecond) {
		if now := watchesOf(t, cp); !maps.Equal(now, open) {
			open, since = now, time.Now()
		}
	}
	return open
}

// since returns the changes of w since before, by resource.
func (w watches) since(before watches) watches {
	changes := watches{}
	for resource, n := range w {
		if n != before[resource] {
			changes[resource] = n - before[resource]
		}
	}
	return changes
}
