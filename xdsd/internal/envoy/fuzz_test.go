package envoy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// FuzzTranslate translates any manifest. The model validates it, so that every error of Translate is a bug. A listener
// must not have two filter chains with the same name, and its matcher must select each of them for other connections.
func FuzzTranslate(f *testing.F) {
	files, err := filepath.Glob("../../../internal/model/testdata/proxy-*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		lab.Must(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer", "metadata": {"name": "a", "namespace": "b"},
"spec": {"networkConfig": {"serverIP": "::1"}, "backends": [
{"name": "a.b", "hostname": "*.sentinel.invalid", "port": 443, "targetService": "a", "targetPort": 1, "targetNamespace": "b", "timeoutSeconds": -1, "idleTimeout": "-1s", "maxConnections": -5,
 "maxPendingConnections": -1, "retry": {"attempts": -1, "backoff": "-1s"}, "outlierDetection": {"consecutiveFailures": -1, "ejectionTime": "x", "maxEjectionPercent": 101},
 "healthCheck": {"interval": "0s", "timeout": "x", "unhealthyAfter": -1, "healthyAfter": 0}},
{"name": "", "hostname": "sentinel.invalid", "alternateHostnames": ["default", "*.a", ""], "port": 443, "targetSelector": {"matchLabels": {"": ""}}, "targetPort": "a", "targetNamespace": ""}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		lab.Must(t, os.WriteFile(filepath.Join(dir, "objects.yaml"), data, 0o600))
		options := model.Options{Apps: &model.AppsOptions{}, Proxies: true}
		in, err := watch.ReadManifests(dir, options)
		lab.Must(t, err)
		for _, p := range model.Build(in, options).ProxyServers {
			resources, omitted := NewTranslator(Options{}).Translate(p)
			if omitted != nil {
				t.Error(omitted)
			}
			for _, c := range resources.Clusters {
				if err := c.ValidateAll(); err != nil {
					t.Errorf("cluster %s: %v", c.GetName(), err)
				}
			}
			for _, c := range resources.Routes {
				if err := c.ValidateAll(); err != nil {
					t.Errorf("routes %s: %v", c.GetName(), err)
				}
			}
			for _, l := range resources.Listeners {
				if err := l.ValidateAll(); err != nil {
					t.Errorf("listener %s: %v", l.GetName(), err)
				}
				if !slices.ContainsFunc(p.Listeners, func(in *model.Listener) bool {
					return !in.UDP && !in.HTTP && onlyBackend(in) == nil && message.ListenerName(in.Port) == l.GetName()
				}) {
					continue
				}
				matched := map[string]int{} // number of names by filter chain
				for _, chain := range selected(t, l) {
					matched[chain]++
				}
				for _, chain := range l.GetFilterChains() {
					if n := matched[chain.GetName()]; n == 0 || n > 1 && !strings.HasSuffix(chain.GetName(), " egress") {
						t.Errorf("%s has %d names for the filter chain %s", l.GetName(), matched[chain.GetName()], chain.GetName())
					}
					delete(matched, chain.GetName())
				}
				if len(matched) > 0 {
					t.Errorf("%s selects filter chains that it does not have: %v", l.GetName(), matched)
				}
			}
			for _, u := range p.Upstreams {
				if err := Endpoints(u, in.EndpointSlices).ValidateAll(); err != nil {
					t.Errorf("endpoints of %s: %v", u.Name, err)
				}
			}
		}
	})
}

// selected returns the filter chain that a listener selects by name. It fails the test if a name is listed twice.
func selected(t *testing.T, l *listenerv3.Listener) map[string]string {
	t.Helper()
	chains := map[string]string{}
	add := func(name string, on *matcherv3.Matcher_OnMatch) {
		var chain wrapperspb.StringValue
		lab.Must(t, on.GetAction().GetTypedConfig().UnmarshalTo(&chain))
		if _, twice := chains[name]; twice {
			t.Errorf("%s has the name %q twice", l.GetName(), name)
		}
		chains[name] = chain.GetValue()
	}
	byName := l.GetFilterChainMatcher().GetMatcherTree().GetExactMatchMap().GetMap()["tls"].GetMatcher()
	for name, on := range byName.GetMatcherTree().GetExactMatchMap().GetMap() {
		add(name, on)
	}
	for _, m := range byName.GetOnNoMatch().GetMatcher().GetMatcherList().GetMatchers() {
		add("*"+m.GetPredicate().GetSinglePredicate().GetValueMatch().GetSuffix(), m.GetOnMatch())
	}
	return chains
}
