package envoy

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/connection_limit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
)

// testCases matches the directories of the model's test cases.
const testCases = "../../../internal/model/testdata/proxy-*[^n]"

// readProxies returns the proxies in a directory of manifests, and its objects.
func readProxies(t *testing.T, dir string) ([]*model.ProxyServer, *model.Objects) {
	t.Helper()
	options := model.Options{Apps: &model.AppsOptions{}, Proxies: true}
	in, err := watch.ReadManifests(dir, options)
	lab.Must(t, err)
	return model.Build(in, options).ProxyServers, in
}

func mustTranslate(t *testing.T, p *model.ProxyServer, options Options) ads.Resources {
	t.Helper()
	resources, omitted := NewTranslator(options).Translate(p)
	if omitted != nil {
		t.Fatal(omitted)
	}
	return resources
}

func TestGolden(t *testing.T) {
	dirs, err := filepath.Glob(testCases)
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no test cases: %v", err)
	}
	for _, dir := range dirs {
		proxies, in := readProxies(t, dir)
		for _, p := range proxies {
			name := strings.TrimPrefix(filepath.Base(dir), "proxy-") + "-" + p.Name
			t.Run(name, func(t *testing.T) {
				resources := mustTranslate(t, p, Options{ConnectionRate: 2000, PortConnectionRates: map[uint16]uint32{443: 500, 8091: 0}})
				golden.Check(t, filepath.Join("testdata", name+".yaml"), render(t, p, resources, in))
				validate(t, p, resources)
			})
		}
	}
}

// toYAML renders a message as YAML that Envoy reads. Equal messages have equal text.
func toYAML(t *testing.T, m proto.Message) []byte {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err == nil {
		text, err = yaml.JSONToYAML(text) // protojson varies its whitespace on purpose; this removes it, and sorts keys
	}
	lab.Must(t, err)
	return text
}

// render returns the YAML of all resources that would be sent to Envoy, each with its kind and name.
func render(t *testing.T, p *model.ProxyServer, r ads.Resources, in *model.Objects) string {
	t.Helper()
	var b strings.Builder
	write := func(kind, name string, m proto.Message) {
		fmt.Fprintf(&b, "# %s %s\n%s---\n", kind, name, toYAML(t, m))
	}
	for _, l := range r.Listeners {
		write("listener", l.GetName(), l)
	}
	for _, c := range r.Routes {
		write("routes", c.GetName(), c)
	}
	for _, c := range r.Clusters {
		write("cluster", c.GetName(), c)
	}
	for _, u := range p.Upstreams {
		write("endpoints", u.Name, Endpoints(u, slicesOf(in, u.Service)))
	}
	return b.String()
}

func slicesOf(in *model.Objects, service string) []*objects.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(in.EndpointSlices), func(s *objects.EndpointSlice) bool { return s.Service() != service })
}

// validate runs Envoy's validation on the listeners and clusters, as static resources of its bootstrap configuration.
// Envoy validates those like resources from ADS.
func validate(t *testing.T, p *model.ProxyServer, r ads.Resources) {
	t.Helper()
	namespace, name, _ := strings.Cut(p.Key(), "/")
	config := bootstrap.Config{NodeID: "test", AdminSocket: filepath.Join(lab.TempDir(t), "admin.sock")}
	config.ProxyServer.Namespace, config.ProxyServer.Name = namespace, name
	text, err := config.YAML()
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	static := &bootstrapv3.Bootstrap{}
	if err == nil {
		err = protojson.Unmarshal(text, static)
	}
	lab.Must(t, err)
	static.StaticResources.Listeners = append(static.StaticResources.Listeners, r.Listeners...)
	static.StaticResources.Clusters = append(static.StaticResources.Clusters, r.Clusters...)
	lab.Report(t, lab.ValidateEnvoy(t.Context(), toYAML(t, static)))
}

// TestTranslationIsDeterministic translates the same objects in another order. Any difference would close connections
// needlessly.
func TestTranslationIsDeterministic(t *testing.T) {
	proxies, in := readProxies(t, "../../../internal/model/testdata/proxy-infra")
	slices.Reverse(in.Services)
	slices.Reverse(in.Routes)
	slices.Reverse(in.EndpointSlices)
	options := model.Options{Apps: &model.AppsOptions{}, Proxies: true}
	again := model.Build(in, options).ProxyServers
	for i, p := range proxies {
		first, second := render(t, p, mustTranslate(t, p, Options{}), in), render(t, again[i], mustTranslate(t, again[i], Options{}), in)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%s differs:\n%s", p.Ref, diff)
		}
	}
}

// TestOptions compares listeners and clusters with addresses to bind to and to connect from, and with floating addresses, which use freebind.
func TestOptions(t *testing.T) {
	proxies, _ := readProxies(t, "../../../internal/model/testdata/proxy-infra")
	floating := []netip.Addr{netip.MustParseAddr("192.0.2.4")}
	for name, options := range map[string]Options{
		"source": {
			Bind:   []netip.Addr{netip.MustParseAddr("127.0.5.1")},
			Source: []netip.Addr{netip.MustParseAddr("fd00:50::7"), netip.MustParseAddr("192.168.50.7"), netip.MustParseAddr("192.168.50.8")},
			Device: "net1",
		},
		"floating": {Bind: []netip.Addr{netip.MustParseAddr("192.0.2.11")}, Floating: floating},
	} {
		t.Run(name, func(t *testing.T) {
			resources := mustTranslate(t, proxies[0], options)
			validate(t, proxies[0], resources)
			var text strings.Builder
			for _, l := range resources.Listeners {
				part := &listenerv3.Listener{Address: l.GetAddress(), AdditionalAddresses: l.GetAdditionalAddresses(), Freebind: l.GetFreebind()}
				fmt.Fprintf(&text, "# listener %s\n%s---\n", l.GetName(), toYAML(t, part))
			}
			for _, c := range resources.Clusters {
				fmt.Fprintf(&text, "# cluster %s\n%s---\n", c.GetName(), toYAML(t, &clusterv3.Cluster{UpstreamBindConfig: c.GetUpstreamBindConfig()}))
			}
			golden.Check(t, filepath.Join("testdata", "options-"+name+".yaml"), text.String())
		})
	}
}

// TestNewRouteChangesNothingElse adds a route. All existing filter chains, the other fields of the listener and all
// clusters must stay the same.
func TestNewRouteChangesNothingElse(t *testing.T) {
	proxies, _ := readProxies(t, "../../../internal/model/testdata/proxy-backends")
	p := proxies[slices.IndexFunc(proxies, func(p *model.ProxyServer) bool { return p.Name == "own" })]
	before := mustTranslate(t, p, Options{})
	changed := *p
	changed.Listeners = slices.Clone(p.Listeners)
	at := slices.IndexFunc(p.Listeners, func(l *model.Listener) bool { return !l.UDP })
	l := *p.Listeners[at]
	l.Routes = append([]model.Route{{Host: "0.example.com", Upstream: p.Upstreams[0].Name, Owner: p.Ref}}, l.Routes...)
	changed.Listeners[at] = &l
	after := mustTranslate(t, &changed, Options{})

	chains := map[string]*listenerv3.FilterChain{}
	for _, c := range after.Listeners[at].GetFilterChains() {
		chains[c.GetName()] = c
	}
	for _, c := range before.Listeners[at].GetFilterChains() {
		if !proto.Equal(c, chains[c.GetName()]) {
			t.Errorf("chain %s has changed", c.GetName())
		}
		delete(chains, c.GetName())
	}
	if len(chains) != 1 {
		t.Errorf("%d new filter chains, want 1", len(chains))
	}
	for _, l := range []*listenerv3.Listener{before.Listeners[at], after.Listeners[at]} {
		l.FilterChains, l.FilterChainMatcher = nil, nil // Envoy updates a listener in place if only these change
	}
	if !proto.Equal(before.Listeners[at], after.Listeners[at]) {
		t.Error("other fields of the listener have changed")
	}
	if !slices.EqualFunc(before.Clusters, after.Clusters, func(a, b *clusterv3.Cluster) bool { return proto.Equal(a, b) }) {
		t.Error("clusters have changed")
	}
}

// TestInvalidPartIsLeftOut translates a proxy with values that the model does not produce. Envoy must accept the rest.
func TestInvalidPartIsLeftOut(t *testing.T) {
	upstreams := func(connect time.Duration, udp string) []*model.Upstream {
		return []*model.Upstream{
			{Name: "ns/good/443", ConnectTimeout: time.Second},
			{Name: "ns/bad/443", ConnectTimeout: connect},
			{Name: udp, UDP: true, ConnectTimeout: time.Second, MaxConnections: 1, IdleTimeout: time.Second},
		}
	}
	rule := func(path string) []model.HTTPRule {
		return []model.HTTPRule{{Name: "rule", Path: path, Backends: []model.HTTPBackend{{Upstream: "ns/good/443", Weight: 1}}}}
	}
	proxy := func(path, host, udp string, connect time.Duration) *model.ProxyServer {
		return &model.ProxyServer{
			Ref: model.Ref{Kind: "ProxyServer", Namespace: "ns", Name: "proxy"}, Upstreams: upstreams(connect, udp),
			Listeners: []*model.Listener{
				{Port: 53, UDP: true, Routes: []model.Route{{Host: "dns", Upstream: udp}}},
				{Port: 80, HTTP: true, Routes: []model.Route{
					{Host: "good", Upstream: "ns/good/443"}, {Host: "rules", Rules: append(rule("/good"), rule(path)...)}, {Host: host, Upstream: "ns/bad/443"},
				}},
				{Port: 443, Routes: []model.Route{{Host: "good", Upstream: "ns/good/443"}, {Host: "bad", Upstream: "ns/bad/443"}}},
			},
		}
	}
	if _, omitted := NewTranslator(Options{}).Translate(proxy("/path", "host", "ns/udp/53", time.Second)); omitted != nil {
		t.Fatalf("without invalid values: %v", omitted)
	}
	p := proxy("/path?query", "a\nb", "", -1)
	resources, omitted := NewTranslator(Options{}).Translate(p)
	var parts []string
	for _, o := range omitted {
		parts = append(parts, o.Part)
		if o.Reason == "" {
			t.Errorf("%s has no reason", o.Part)
		}
	}
	if want := []string{"cluster ns/bad/443", "cluster ", "UDP port 53", "port 80, rules, rule rule", "port 80, a\nb"}; !slices.Equal(parts, want) {
		t.Errorf("left out %q, want %q: %v", parts, want, omitted)
	}
	var names []string
	for _, l := range resources.Listeners {
		names = append(names, l.GetName())
	}
	for _, c := range resources.Clusters {
		names = append(names, c.GetName())
	}
	for _, h := range resources.Routes[0].GetVirtualHosts() {
		names = append(names, fmt.Sprint(h.GetDomains(), len(h.GetRoutes())))
	}
	if want := []string{"port-80", "port-443", "ns/good/443", "[good] 2", "[rules] 2"}; !slices.Equal(names, want) {
		t.Errorf("served %q, want %q", names, want)
	}
	validate(t, p, resources)
}

// TestTranslatorUsesMessagesAgain translates a proxy that changes in turn. The results must equal those without an earlier
// translation, and the messages of what has not changed must be the same ones.
func TestTranslatorUsesMessagesAgain(t *testing.T) {
	proxies, in := readProxies(t, "../../../internal/model/testdata/proxy-infra")
	p := proxies[0]
	translator := NewTranslator(Options{})
	kept := func() map[any]bool {
		resources, omitted := translator.Translate(p)
		if omitted != nil {
			t.Fatal(omitted)
		}
		if diff := cmp.Diff(render(t, p, mustTranslate(t, p, Options{}), in), render(t, p, resources, in)); diff != "" {
			t.Fatal(diff)
		}
		messages := map[any]bool{}
		for _, c := range resources.Clusters {
			messages[c] = true
		}
		for _, l := range resources.Listeners {
			for _, c := range l.GetFilterChains() {
				if strings.Contains(c.GetName(), "/") { // of a route
					messages[c] = true
				}
			}
		}
		return messages
	}
	before := kept()
	for _, tc := range []struct {
		name    string
		change  func(*model.ProxyServer)
		rebuilt func(m any) bool // whether a message must be another one
	}{
		{"nothing", func(*model.ProxyServer) {}, func(any) bool { return false }},
		{"a route and a missing one", func(p *model.ProxyServer) {
			l := *p.Listeners[slices.IndexFunc(p.Listeners, func(l *model.Listener) bool { return l.Port == 443 })]
			l.Routes = slices.Clone(l.Routes[1:])
			l.Routes = append(l.Routes, model.Route{Host: "new.example.com", Upstream: l.Routes[0].Upstream, Owner: p.Ref})
			p.Listeners = []*model.Listener{&l}
		}, func(m any) bool {
			c, ok := m.(*listenerv3.FilterChain)
			return ok && strings.HasSuffix(c.GetName(), " new.example.com")
		}},
		{"timeouts of an upstream", func(p *model.ProxyServer) {
			u := *p.Upstreams[0]
			u.IdleTimeout, u.ConnectTimeout = u.IdleTimeout+time.Second, u.ConnectTimeout+time.Second
			p.Upstreams = slices.Clone(p.Upstreams)
			p.Upstreams[0] = &u
		}, func(m any) bool {
			switch m := m.(type) {
			case *clusterv3.Cluster:
				return m.GetName() == p.Upstreams[0].Name
			case *listenerv3.FilterChain:
				return strings.Contains(string(m.GetFilters()[0].GetTypedConfig().GetValue()), p.Upstreams[0].Name)
			}
			return false
		}},
		{"the source address", func(p *model.ProxyServer) { p.VLAN = []netip.Addr{netip.MustParseAddr("192.0.2.99")} }, func(m any) bool {
			_, ok := m.(*clusterv3.Cluster)
			return ok
		}},
	} {
		changed := *p
		tc.change(&changed)
		p = &changed
		rebuilt := 0
		for m := range kept() {
			if tc.rebuilt(m) == before[m] {
				t.Errorf("%s: message kept: %t: %v", tc.name, before[m], m)
			}
			if tc.rebuilt(m) {
				rebuilt++
			}
		}
		if tc.name != "nothing" && rebuilt == 0 {
			t.Errorf("%s changes no message", tc.name)
		}
		p = proxies[0]
		before = kept()
	}
}
