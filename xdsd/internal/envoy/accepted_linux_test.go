package envoy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
)

// FuzzAcceptedProxyServers sends random ProxyServers, Infras and Routes that an API server with our CRDs would accept to
// an Envoy, one after the other. Envoy must acknowledge each of them. A part of them is rejected by the CRDs and skipped.
// Envoy must also accept the bootstrap configuration with the limits of some of them.
func FuzzAcceptedProxyServers(f *testing.F) {
	proxy := startProxy(f, 1)
	api := newAPI(f)
	base, err := watch.ReadManifests("../../../internal/model/testdata/proxy-infra", fuzzOptions)
	if err != nil {
		f.Fatal(err)
	}
	for seed := range uint64(lab.Length(300, 28_000)) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := generator{rand.New(rand.NewPCG(seed, 0))}
		in := *base
		infra, server := new(v1alpha1.Infra), new(v1alpha1.ProxyServer)
		accept(t, api, g.infra(), infra)
		accept(t, api, g.proxyServer(), server)
		in.Infras, in.ProxyServers = []*v1alpha1.Infra{infra}, []*v1alpha1.ProxyServer{server}
		in.Routes = slices.Clone(in.Routes)
		for range g.IntN(4) {
			r := *in.Routes[0]
			r.Name, r.Spec.Host = fmt.Sprintf("random-%d", len(in.Routes)), g.host()
			in.Routes = append(in.Routes, &r)
		}
		limits := server.Spec.Limits
		if limits == nil {
			limits = &v1alpha1.ProxyLimits{}
		}
		p := model.Build(&in, fuzzOptions).ProxyServers[0]
		resources, omitted := NewTranslator(g.options(limits)).Translate(p)
		if omitted != nil {
			t.Fatal(omitted)
		}
		for _, u := range p.Upstreams {
			resources.Endpoints = append(resources.Endpoints, Endpoints(u, slicesOf(&in, u.Service)))
		}
		proxy.send(t, resources)
		if seed%64 == 0 {
			validateLimits(t, limits)
		}
	})
}

// TestDocumentedProxyServers sends the examples of the reference to an Envoy. The API server must accept them.
func TestDocumentedProxyServers(t *testing.T) {
	proxy := startProxy(t, 1)
	api := newAPI(t)
	blocks := strings.Split(string(lab.ReadFile(t, "docs", "reference", "proxy.md")), "```")
	examples := 0
	for _, block := range blocks {
		text, ok := strings.CutPrefix(block, "yaml\n")
		if !ok || !strings.Contains(text, "kind: ProxyServer\n") {
			continue
		}
		examples++
		written := fields{}
		if err := yaml.Unmarshal([]byte(text), &written); err != nil {
			t.Fatal(err)
		}
		server := new(v1alpha1.ProxyServer)
		if err := decode(t, api, written, server); err != nil {
			t.Fatal(err)
		}
		s := model.Build(&model.Objects{ProxyServers: []*v1alpha1.ProxyServer{server}}, fuzzOptions)
		for _, p := range s.Problems {
			if p.Reason != model.ReasonServiceNotFound {
				t.Error(p)
			}
		}
		resources, omitted := NewTranslator(Options{}).Translate(s.ProxyServers[0])
		if omitted != nil {
			t.Fatal(omitted)
		}
		for _, u := range s.ProxyServers[0].Upstreams {
			resources.Endpoints = append(resources.Endpoints, Endpoints(u, nil))
		}
		proxy.send(t, resources)
	}
	if examples < 2 {
		t.Errorf("found %d examples", examples)
	}
}

// management is the API server that judges the objects.
var management = lab.Shared{Config: lab.Config{Name: "accepted", CRDs: []lab.CRDSet{lab.Oooi}}}

func TestMain(m *testing.M) { lab.Main(m, &management) }

// newAPI returns a client of the API server, which has the namespace of the objects.
func newAPI(tb testing.TB) client.Client {
	tb.Helper()
	cp := management.Get(tb)
	if err := cp.Apply(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: proxyName.Namespace}}); err != nil {
		tb.Fatal(err)
	}
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

var fuzzOptions = model.Options{Apps: &model.AppsOptions{}, Proxies: true}

// proxyName is the name of the ProxyServer.
var proxyName = types.NamespacedName{Namespace: "clusters", Name: "demo"}

// A proxy is an ADS server with a connected Envoy, in a network where every port is free.
type proxy struct {
	network *lab.Namespace
	server  *ads.Server
	envoy   *lab.Envoy
	changed <-chan struct{}
}

// startProxy starts an Envoy with the given number of worker threads.
func startProxy(tb testing.TB, workers int) *proxy {
	tb.Helper()
	return startLimited(tb, workers, bootstrap.Config{})
}

// startLimited is startProxy with the limits in config. Envoy has as many file descriptors as config.Descriptors.
func startLimited(tb testing.TB, workers int, config bootstrap.Config) *proxy {
	tb.Helper()
	network, err := lab.OpenNamespace()
	if errors.Is(err, os.ErrPermission) && os.Getenv("CI") == "" {
		tb.Skip(err)
	} else if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = network.Close() })
	dir := lab.TempDir(tb)
	config.NodeID, config.ProxyServer, config.DrainTime = "test", proxyName, time.Second
	config.ServerSocket, config.AdminSocket = filepath.Join(dir, "ads.sock"), filepath.Join(dir, "admin.sock")
	// Removed clusters are served for a second instead of 30, of which thousands would accumulate.
	server, err := ads.New(ads.Options{Log: slog.New(slog.DiscardHandler), Retain: time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := ads.ListenUnix(tb.Context(), config.ServerSocket)
	if err != nil {
		tb.Fatal(err)
	}
	go func() { _ = server.Serve(tb.Context(), listener) }() // until the context ends
	changed, cancel := server.Subscribe()
	tb.Cleanup(cancel)

	text, err := config.YAML()
	if err != nil {
		tb.Fatal(err)
	}
	args := config.Args()
	binary, err := lab.FindEnvoy(tb.Context(), tb.Logf)
	if err != nil {
		tb.Fatal(err)
	}
	inside := filepath.Join(dir, "envoy")
	script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", strings.Join(network.CommandLine(binary), " "))
	if err := os.WriteFile(inside, []byte(script), 0o700); err != nil {
		tb.Fatal(err)
	}
	envoy := lab.NewEnvoy(tb, lab.EnvoyConfig{
		Bootstrap: text, Args: append(args, "--concurrency", fmt.Sprint(workers)), Binary: inside, Unready: true, Descriptors: int(config.Descriptors),
	})
	tb.Cleanup(func() {
		// Listeners that Envoy accepted, but could not open.
		if stats, err := envoy.Stats(context.Background()); err != nil {
			tb.Error(err)
		} else if n := stats["listener_manager.listener_create_failure"]; n != 0 {
			tb.Errorf("%d listeners could not be created", n)
		}
	})
	return &proxy{network, server, envoy, changed}
}

// send replaces the configuration and waits until Envoy has acknowledged or rejected it.
func (p *proxy) send(t *testing.T, resources ads.Resources) {
	t.Helper()
	started := time.Now()
	p.server.Set(proxyName.String(), resources)
	timeout := time.After(2 * time.Minute)
	for {
		_, e := p.server.Envoy(proxyName.String(), "test")
		for _, kind := range e.Types {
			if kind.NACK != nil && kind.NACK.Time.After(started) {
				t.Fatalf("Envoy rejected a %s: %s", kind.NACK.Type, kind.NACK.Message)
			}
		}
		if e.Current {
			return
		}
		select {
		case <-p.changed:
		case <-timeout:
			t.Fatalf("Envoy has not answered: %+v", e)
		}
	}
}

// validateLimits runs Envoy's validation on a bootstrap configuration with the limits.
func validateLimits(t *testing.T, limits *v1alpha1.ProxyLimits) {
	t.Helper()
	config := bootstrap.Config{NodeID: "fuzz", ProxyServer: proxyName, PortConnections: map[uint16]uint32{}}
	if limits.MaxConnections != nil {
		config.MaxConnections = uint32(*limits.MaxConnections)
	}
	for _, p := range limits.Ports {
		if p.MaxConnections != nil {
			config.PortConnections[uint16(p.Port)] = uint32(*p.MaxConnections)
		}
	}
	text, err := config.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.ValidateEnvoy(t.Context(), text); err != nil {
		t.Error(err)
	}
}

// accept is decode for an object that may be rejected: the test is skipped then.
func accept(t *testing.T, c client.Client, written fields, into client.Object) {
	t.Helper()
	if err := decode(t, c, written, into); apierrors.IsInvalid(err) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// decode decodes an object as an API server with our CRDs returns it, without storing it. It returns the API server's error.
func decode(t *testing.T, c client.Client, written fields, into client.Object) error {
	t.Helper()
	text, err := json.Marshal(written)
	if err != nil {
		t.Fatal(err)
	}
	created := &unstructured.Unstructured{}
	if err := created.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	created.SetNamespace(proxyName.Namespace)
	if err := c.Create(t.Context(), created, client.DryRunAll); err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, into); err != nil {
		t.Fatal(err)
	}
	return nil
}

// A generator generates objects, most of which are valid. Their names, ports and addresses are few, so that they conflict.
type generator struct{ *rand.Rand }

type fields = map[string]any

func (g generator) chance(n int) bool { return g.IntN(n) == 0 }

func oneOf[T any](g generator, list ...T) T { return list[g.IntN(len(list))] }

// set sets a field in one of two cases.
func (g generator) set(o fields, name string, value any) {
	if g.chance(2) {
		o[name] = value
	}
}

func (g generator) label() string {
	return oneOf(g, "a", "b", "api", "demo", "lab", "example", "com", "apps", "A-b", "_dns", "0", "10", "xn--bcher-kva", "default", "svc", "sentinel", strings.Repeat("x", 63))
}

// host returns a hostname that the pattern of the CRD allows.
func (g generator) host() string {
	switch g.IntN(20) {
	case 0:
		return oneOf(g, "*", "*.", "", ".", "a..b", "é.example.com", "a b", "a:443", "%s", `"`, "{}", "sentinel.invalid", "*.invalid", "\u212a.com", strings.Repeat("a", 300), "xn--", "-a.b")
	case 1, 2:
		return oneOf(g, "api.demo.lab.example.com", "API.demo.lab.example.com.", "oauth.demo.lab.example.com", "*.apps.demo.lab.example.com", "*.demo.lab.example.com",
			"console-openshift-console.apps.demo.lab.example.com", "kubernetes", "kubernetes.default.svc", "10.96.0.1", "192.0.2.1", "fd00::1", "default", "not TLS", "*.com", "*.10",
			strings.Repeat(strings.Repeat("y", 49)+".", 5)+"com")
	}
	labels := make([]string, 1+g.IntN(4))
	for i := range labels {
		labels[i] = g.label()
	}
	return oneOf(g, "", "", "", "*.") + strings.Join(labels, ".") + oneOf(g, "", "", "", ".")
}

func (g generator) port() int32 {
	return oneOf(g, 443, 443, 443, 6443, 8091, 80, 1, 53, 8443, 9901, 9902, 65535, 1+g.Int32N(65535), 32768+g.Int32N(28232))
}

func (g generator) number() int32 {
	return oneOf(g, 1, 2, 100, math.MaxInt32, 1+g.Int32N(math.MaxInt32-1))
}

func (g generator) duration() string {
	var b strings.Builder
	for range 1 + g.IntN(3) {
		fmt.Fprintf(&b, "%d%s", oneOf(g, 0, 1, 5, 99999, g.IntN(100000)), oneOf(g, "ms", "s", "m", "h"))
	}
	return b.String()
}

// positive returns a duration that is not zero.
func (g generator) positive() string {
	return oneOf(g, "1ms", "50ms", "1s", "5s", "99999h", "1s"+g.duration())
}

func (g generator) address() string {
	return oneOf(g, "192.168.50.3", "192.168.50.40", "fd00:50::3", "fd00:50::40", "127.0.0.1", "0.0.0.0", "::", "::1", "224.0.0.1", "ff02::1", "fe80::1", "255.255.255.255",
		"::ffff:192.168.50.3", "64:ff9b::1", "999.1.1.1", netip.AddrFrom4([4]byte{192, 168, 50, byte(g.IntN(256))}).String())
}

func (g generator) healthCheck() fields {
	check := fields{}
	g.set(check, "interval", g.positive())
	g.set(check, "timeout", g.positive())
	g.set(check, "unhealthyAfter", g.number())
	g.set(check, "healthyAfter", g.number())
	return check
}

func (g generator) retry() fields {
	retry := fields{}
	g.set(retry, "attempts", g.IntN(11))
	g.set(retry, "backoff", oneOf(g, "1ms", "50ms", "1m"))
	return retry
}

func (g generator) outlierDetection() fields {
	outlier := fields{}
	g.set(outlier, "consecutiveFailures", oneOf(g, 0, g.number()))
	g.set(outlier, "ejectionTime", oneOf(g, "1s", "30s", "31s", "1h"))
	g.set(outlier, "maxEjectionPercent", 1+g.IntN(99))
	return outlier
}

func (g generator) backend(n int) fields {
	b := fields{
		"name": oneOf(g, fmt.Sprint("b", n), fmt.Sprint("b", n), "a", strings.Repeat("n", 60)+fmt.Sprint(n)), "hostname": g.host(), "port": g.port(),
		"targetNamespace": oneOf(g, "clusters-demo", "clusters-demo", "clusters", "A b.c/d"),
		"targetPort":      oneOf[any](g, 443, 6443, 65535, "tls", "https", "other"),
	}
	if g.chance(4) {
		b["targetSelector"] = fields{"matchLabels": fields{oneOf(g, "app", "oooi.test/app"): oneOf(g, "a", "")}, "onMultiple": oneOf(g, "Fail", "Newest", "Oldest")}
	} else {
		b["targetService"] = oneOf(g, "registry", "registry", "kube-apiserver", "oauth-openshift", "gone", "a.b:c d")
	}
	alternates := []string{}
	for range oneOf(g, 0, 0, 1, 3) {
		alternates = append(alternates, g.host())
	}
	g.set(b, "alternateHostnames", alternates)
	g.set(b, "protocol", oneOf(g, "TCP", "TLS", "HTTPS", "UDP"))
	if g.chance(3) {
		b["protocol"] = "HTTP"
		b["http"] = fields{"rules": g.rules()}
		g.set(b, "hostname", "*")
		if g.chance(2) {
			delete(b, "targetService")
			delete(b, "targetSelector")
			delete(b, "targetPort")
		}
	}
	g.set(b, "timeoutSeconds", g.number())
	g.set(b, "idleTimeout", g.duration())
	g.set(b, "maxConnections", g.number())
	g.set(b, "proxyProtocol", oneOf(g, "None", "V1", "V2"))
	g.set(b, "healthCheck", g.healthCheck())
	if b["protocol"] != "UDP" {
		g.set(b, "outlierDetection", g.outlierDetection())
	}
	if b["protocol"] != "UDP" && b["protocol"] != "HTTP" {
		g.set(b, "retry", g.retry())
		g.set(b, "maxPendingConnections", g.number())
	}
	return b
}

func (g generator) path() string {
	return oneOf(g, "/", "/a", "/a/", "/a/b", "/%2F", "/a;b=c", "/a.b/..c", "//", "/a/..", "/./a", "a", "/a?b", "/"+strings.Repeat("p", 1+g.IntN(1023)))
}

func (g generator) rules() []fields {
	var rules []fields
	for range 1 + g.IntN(5) {
		rule := fields{}
		var matches, refs []fields
		for range g.IntN(4) {
			m := fields{}
			path := fields{}
			g.set(path, "type", oneOf(g, "Exact", "PathPrefix"))
			g.set(path, "value", g.path())
			g.set(m, "path", path)
			g.set(m, "method", oneOf(g, "GET", "POST", "PATCH", "TRACE"))
			g.set(m, "headers", []fields{{"name": oneOf(g, "X-Version", "host", "cookie", "!#$%&'*+-.^_|~"), "value": oneOf(g, "v2", " ", "é", strings.Repeat("h", 4096), "a\nb", "%s")}})
			matches = append(matches, m)
		}
		if matches != nil {
			rule["matches"] = matches
		}
		for range g.IntN(4) {
			refs = append(refs, fields{"name": oneOf(g, "registry", "kube-apiserver", "gone"), "port": oneOf(g, 443, 6443, 1, 65535), "weight": oneOf(g, 0, 1, 50, 1_000_000)})
		}
		if refs != nil {
			rule["backendRefs"] = refs
		}
		if g.chance(3) {
			redirect := fields{}
			g.set(redirect, "scheme", oneOf(g, "http", "https"))
			g.set(redirect, "hostname", oneOf(g, "example.com", "a", strings.Repeat("a", 253)))
			g.set(redirect, "port", 1+g.IntN(65535))
			g.set(redirect, "statusCode", oneOf(g, 301, 302, 303, 307, 308))
			rule["filters"] = []fields{{"type": "RequestRedirect", "requestRedirect": redirect}}
		}
		g.set(rule, "timeouts", fields{"request": g.duration()})
		if g.chance(2) {
			retry := fields{}
			g.set(retry, "codes", []int{400 + g.IntN(200), 503, 503}[:1+g.IntN(3)])
			g.set(retry, "attempts", 1+g.IntN(10))
			g.set(retry, "backoff", g.duration())
			rule["retry"] = retry
		}
		rules = append(rules, rule)
	}
	return rules
}

func (g generator) limits() fields {
	limits := fields{}
	g.set(limits, "maxConnections", oneOf(g, 16, 17, 10_000_000, 16+g.IntN(100_000)))
	g.set(limits, "connectionsPerSecond", oneOf(g, 0, 1, 1_000_000))
	ports := []fields{}
	for _, port := range []int32{443, 6443, 8091, 1}[g.IntN(4):] {
		p := fields{"port": port}
		g.set(p, "maxConnections", oneOf(g, 1, 10_000_000))
		g.set(p, "connectionsPerSecond", oneOf(g, 0, 1, 1_000_000))
		ports = append(ports, p)
	}
	g.set(limits, "ports", ports)
	return limits
}

func (g generator) proxyServer() fields {
	spec := fields{"networkConfig": fields{"serverIP": g.address() + oneOf(g, "", "", "/24", "/32")}}
	if !g.chance(3) {
		spec["infraRef"] = fields{"name": oneOf(g, "demo", "demo", "demo", "other")}
	}
	var backends []fields
	for n := range oneOf(g, 1, 2, 5, 20, 60) {
		backends = append(backends, g.backend(n))
	}
	spec["backends"] = backends
	g.set(spec, "limits", g.limits())
	return object("ProxyServer", spec)
}

func (g generator) infra() fields {
	proxy := fields{"serverIP": oneOf(g, "192.168.50.3", "192.168.50.3/24", g.address())}
	g.set(proxy, "additionalServerIPs", []string{oneOf(g, "fd00:50::3", "fe80::3")})
	g.set(proxy, "connectTimeout", g.positive())
	g.set(proxy, "idleTimeout", g.duration())
	g.set(proxy, "maxConnections", g.number())
	apps := fields{
		"enabled": !g.chance(4), "source": "Static", "addresses": []string{oneOf(g, "192.168.50.40", "192.168.50.41"), oneOf(g, "fd00:50::40", g.address())},
		"ports": fields{"http": oneOf(g, 80, 80, g.port()), "https": oneOf(g, 443, 443, g.port())},
	}
	g.set(apps, "proxyProtocol", oneOf(g, "None", "V1", "V2"))
	g.set(apps, "baseDomain", oneOf(g, "example.org", "apps.example.org", "Lab.example.com."))
	return object("Infra", fields{
		"hostedClusterRef": fields{"name": "demo", "namespace": "clusters"},
		"networkConfig": fields{
			"cidr": "192.168.50.0/24", "additionalCIDRs": []string{"fd00:50::/64"}, "gateway": "192.168.50.1", "networkAttachmentDefinition": "vlan50",
		},
		"infraComponents": fields{"proxy": proxy}, "appsIngress": apps,
	})
}

func object(kind string, spec fields) fields {
	return fields{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind, "spec": spec,
		"metadata": fields{"namespace": proxyName.Namespace, "name": proxyName.Name},
	}
}

// options returns the options of xdsd serve that setup derives from the limits, and random ones for its addresses.
func (g generator) options(limits *v1alpha1.ProxyLimits) Options {
	o := Options{PortConnectionRates: map[uint16]uint32{}, ConnectionRate: uint32(v1alpha1.DefaultConnectionsPerSecond)}
	if rate := limits.ConnectionsPerSecond; rate != nil {
		o.ConnectionRate = uint32(*rate)
	}
	for _, p := range limits.Ports {
		if rate := p.ConnectionsPerSecond; rate != nil {
			o.PortConnectionRates[uint16(p.Port)] = uint32(*rate)
		}
	}
	if g.chance(8) {
		o.Bind, o.Floating = []netip.Addr{netip.MustParseAddr("127.0.0.1")}, []netip.Addr{netip.MustParseAddr("192.168.50.3"), netip.MustParseAddr("fd00:50::3")}
		o.Source, o.Device = []netip.Addr{netip.MustParseAddr("192.168.50.4"), netip.MustParseAddr("fd00:50::4")}, "net1"
	}
	return o
}
