//go:build e2e

package e2eingress_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/ingresstest"
	"github.com/densityops/oooi/test/lab"
)

// Contour's Envoy listens on the ports of a Gateway's listeners plus 8000.
const (
	gatewayHTTP = entry + ":8080"
	gatewayTLS  = entry + ":8443"
)

const (
	contourConfig = "gateway: {gatewayRef: {namespace: gateways, name: front}}"
	gateway       = `
apiVersion: v1
kind: Namespace
metadata: {name: gateways}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: contour}
spec: {controllerName: projectcontour.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front, namespace: gateways}
spec:
  gatewayClassName: contour
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
  - {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}}
`
)

// startGateway starts xdsd ingress, and Contour for Gateway gateways/front.
func startGateway(t *testing.T) *site {
	t.Helper()
	network.Need(t)
	cp := cluster.Get(t)
	startXDSD(t, cp)
	cp.MustApply(t, gateway)
	startContour(t, cp, contourConfig)
	return &site{ingresstest.New(t, cp)}
}

// routes applies VirtualIngress web with an output for Gateway front.
func (s *site) routes(output, listener, mode, rules string) {
	s.Helper()
	s.Apply(fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: VirtualIngress
metadata: {name: web}
spec:
  output: %s
  backendMode: %s
  parentRefs: [{name: front, namespace: gateways, sectionName: %s}]
  rules: %s
`, output, mode, listener, rules))
}

// awaitAccepted waits until the Gateway has accepted the routes, and resolved their Services.
func (s *site) awaitAccepted() {
	s.Helper()
	lab.Await(s, "Contour to accept the route", func() string {
		conditions := s.Virtual("web").Status.Conditions
		for _, kind := range []string{"Accepted", "ResolvedRefs", v1alpha1.ConditionReady} {
			if !meta.IsStatusConditionTrue(conditions, kind) {
				return fmt.Sprintf("conditions are %+v", conditions)
			}
		}
		return ""
	})
}

// httpGet requests a path of a host from the Gateway, and returns the status and the body.
func httpGet(ctx context.Context, host, path string, headers ...string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+gatewayHTTP+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	request.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// TestContourServesRoutes sends requests through a Gateway by path, header, weight and redirect, and TLS that is passed through.
func TestContourServesRoutes(t *testing.T) {
	s := startGateway(t)
	const first, second, third = "198.18.1.1", "198.18.1.2", "198.18.1.3"
	for _, address := range []string{first, second} {
		startServer(t, address, "at "+address)
	}
	ca := lab.NewCA(t)
	ca.TLSBackend(t, net.JoinHostPort(third, "30080"), "tls.example.com")
	s.Mirrored("a-first", "app: first", first)
	s.Mirrored("a-second", "app: second", second)
	s.Mirrored("a-third", "app: third", third)
	backend := func(app string) string { return "service: {matchLabels: {app: " + app + "}, port: {number: 80}}" }

	s.routes("HTTPRoute", "http", "Direct", `
  - host: a.example.com
    http:
      paths:
      - {path: /, pathType: Prefix, backends: [{`+backend("first")+`, weight: 3}, {`+backend("second")+`, weight: 1}]}
      - {path: /second, pathType: Exact, backend: {`+backend("second")+`}}
      - {path: /, pathType: Prefix, headers: [{name: x-version, value: "2"}], backend: {`+backend("second")+`}}
      - {path: /old, pathType: Prefix, filters: [{type: RequestRedirect, requestRedirect: {hostname: b.example.com, statusCode: 301}}]}
  - host: b.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {`+backend("first")+`}, timeouts: {request: 10s}}]}`)
	s.awaitAccepted()
	serves := func(what, host, path, want string, headers ...string) {
		t.Helper()
		await(t, "Contour to serve "+what, func() error {
			status, body, err := httpGet(t.Context(), host, path, headers...)
			if got := fmt.Sprint(status, " ", body); err != nil || got != want {
				return fmt.Errorf("%s, %w", got, err)
			}
			return nil
		})
	}
	serves("the second host", "b.example.com", "/", "200 at "+first)
	serves("an exact path", "a.example.com", "/second", "200 at "+second)
	serves("a header", "a.example.com", "/", "200 at "+second, "x-version", "2")
	serves("a redirect", "a.example.com", "/old", "301 ")
	counts := map[string]int{}
	const requests = 400
	for range requests {
		_, body, err := httpGet(t.Context(), "a.example.com", "/")
		lab.Must(t, err)
		counts[body]++
	}
	if n := counts["at "+second]; n < requests/8 || n > requests*3/8 || n+counts["at "+first] != requests {
		t.Errorf("weights 3 and 1: %v", counts)
	}

	s.routes("TLSRoute", "tls", "Alias", `[{host: tls.example.com, tls: {backends: [{`+backend("third")+`}]}}]`)
	s.awaitAccepted()
	await(t, "Contour to pass TLS through", func() error {
		conn, _, err := ca.DialTLS(t.Context(), gatewayTLS, "tls.example.com")
		if err != nil {
			return err
		}
		return conn.Close()
	})
	await(t, "Contour to forget the HTTPRoutes", func() error {
		if status, _, err := httpGet(t.Context(), "b.example.com", "/"); err == nil && status == http.StatusOK {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
}

// recreations is how often a Service is recreated while requests are sent.
const recreations = 100

// TestRecreationUnderLoad recreates a Service at another address while requests are sent through a Gateway. None may reach the backend of
// another host. The test prints how many fail, and after which time the new Service is served: under the same name without VirtualIngress;
// under another name with an HTTPRoute that the test updates immediately, which is what the implementation itself needs; and with VirtualIngresses.
func TestRecreationUnderLoad(t *testing.T) {
	s := startGateway(t)
	addresses := []string{"198.18.1.1", "198.18.1.2"}
	for _, address := range addresses {
		startServer(t, address, "at "+address)
	}
	startServer(t, "198.18.1.3", "wrong")
	s.Mirrored("a-other", "app: other", "198.18.1.3")
	route := func(host, service string) {
		s.Apply(fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s}
spec: {parentRefs: [{name: front, namespace: gateways}], hostnames: [%[1]s], rules: [{backendRefs: [{name: %s, port: 80}]}]}
`, host, service))
	}
	route("other.example.com", "a-other")
	virtual := func(mode string) func(string, string) {
		return func(host, _ string) {
			backend := "{service: {matchLabels: {app: moved}, port: {number: 80}}}"
			s.routes("HTTPRoute", "http", mode, "[{host: "+host+", http: {paths: [{path: /, pathType: Prefix, backend: "+backend+"}]}}]")
		}
	}
	for _, c := range []struct {
		name    string
		renamed bool                       // the Service gets another name each time
		route   func(host, service string) // is called when the Service was created
	}{
		{"same name", false, route},
		{"updated HTTPRoute", true, route},
		{"Direct", true, virtual("Direct")},
		{"Alias", true, virtual("Alias")},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := strings.ToLower(strings.ReplaceAll(c.name, " ", "-")) + ".example.com"
			l := &load{host: host, results: map[string]int{}}
			var times []time.Duration
			previous := ""
			for i := range recreations {
				name, address := "a-moved", addresses[i%2]
				if c.renamed {
					name = fmt.Sprint("a-moved-", i)
				}
				if previous != "" {
					s.RemoveMirrored(previous)
				}
				previous = name
				s.Mirrored(name, "app: moved", address)
				began := time.Now()
				c.route(host, name)
				for began.Add(lab.WaitTimeout).After(time.Now()) {
					if _, body, err := httpGet(t.Context(), host, "/"); err == nil && body == "at "+address {
						break
					}
					time.Sleep(time.Millisecond)
				}
				times = append(times, time.Since(began))
				if i == 0 {
					l.start(t)
				}
			}
			results := l.stop()
			s.RemoveMirrored(previous)
			s.Remove(&v1alpha1.VirtualIngress{}, "web")
			s.Remove(&gatewayv1.HTTPRoute{}, host) // Contour would write its status with each change
			times = times[1:]                      // without the new route
			slices.Sort(times)
			t.Logf("%d recreations: served after p50 %s, p99 %s; responses %v", len(times), times[len(times)/2], times[len(times)*99/100], results)
			if results["wrong"] > 0 || results["at "+addresses[0]] == 0 || times[len(times)-1] > lab.WaitTimeout {
				t.Errorf("responses %v; the slowest was served after %s", results, times[len(times)-1])
			}
		})
	}
}

// load sends requests one after the other, and counts the responses.
type load struct {
	host    string
	stopped context.CancelFunc
	group   sync.WaitGroup
	results map[string]int // by the body, or the status if it is not 200, or "error"
}

func (l *load) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l.stopped = cancel
	l.group.Go(func() {
		for ctx.Err() == nil {
			status, body, err := httpGet(context.WithoutCancel(ctx), l.host, "/")
			switch {
			case err != nil:
				body = "error"
			case status != http.StatusOK:
				body = fmt.Sprint(status)
			}
			l.results[body]++
			time.Sleep(2 * time.Millisecond)
		}
	})
}

func (l *load) stop() map[string]int {
	l.stopped()
	l.group.Wait()
	return l.results
}
