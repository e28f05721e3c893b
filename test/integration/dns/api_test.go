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

// counter stands before an API server and counts the requests that read lists.
type counter struct {
	kubeconfig string

	mu       sync.Mutex
	requests map[string]int // "list services", "watch secrets", ...
}

// newCounter starts one that makes its requests by a configuration, whoever asks.
func newCounter(t *testing.T, config *rest.Config) *counter {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	n := &counter{requests: map[string]int{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // a watch is a response that never ends
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

// count returns how many requests of a kind there were.
func (n *counter) count(request string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests[request]
}

// String lists the requests so far.
func (n *counter) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var words []string
	for _, request := range slices.Sorted(maps.Keys(n.requests)) {
		words = append(words, fmt.Sprintf("%d %s", n.requests[request], request))
	}
	return strings.Join(words, ", ")
}

// watches are the open watches of an API server, by resource.
type watches map[string]int

// watchesOf returns the open watches of resources that our stores watch.
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

// settledWatches waits until those of processes that were killed have ended.
func settledWatches(t *testing.T, cp *lab.ControlPlane) watches {
	t.Helper()
	open := watchesOf(t, cp)
	for since := time.Now(); time.Since(since) < time.Second; time.Sleep(100 * time.Millisecond) {
		if now := watchesOf(t, cp); !maps.Equal(now, open) {
			open, since = now, time.Now()
		}
	}
	return open
}

// since returns how many more there are than before.
func (w watches) since(before watches) watches {
	more := watches{}
	for resource, n := range w {
		if n != before[resource] {
			more[resource] = n - before[resource]
		}
	}
	return more
}
