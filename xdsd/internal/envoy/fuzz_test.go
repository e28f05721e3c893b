package envoy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
)

// FuzzTranslate translates any manifest. The model validates it, so that every error of Translate is a bug. A listener
// must not have two filter chains with the same name or match, for which Envoy would reject it.
func FuzzTranslate(f *testing.F) {
	files, err := filepath.Glob("../../../internal/model/testdata/proxy-*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer", "metadata": {"name": "a", "namespace": "b"},
"spec": {"networkConfig": {"serverIP": "::1"}, "backends": [
{"name": "a.b", "hostname": "*.sentinel.invalid", "port": 443, "targetService": "a", "targetPort": 1, "targetNamespace": "b", "timeoutSeconds": -1, "idleTimeout": "-1s", "maxConnections": -5,
 "healthCheck": {"interval": "0s", "timeout": "x", "unhealthyAfter": -1, "healthyAfter": 0}},
{"name": "", "hostname": "sentinel.invalid", "alternateHostnames": ["default", "*.a", ""], "port": 443, "targetSelector": {"matchLabels": {"": ""}}, "targetPort": "a", "targetNamespace": ""}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		options := model.Options{Apps: &model.AppsOptions{}, Proxies: true}
		in, err := watch.ReadManifests(dir, options)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range model.Build(in, options).ProxyServers {
			resources, err := Translate(p, Options{})
			if err != nil {
				t.Error(err)
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
				seen := map[string]bool{}
				for _, chain := range l.GetFilterChains() {
					for _, key := range []string{"name " + chain.GetName(), "match " + chain.GetFilterChainMatch().String()} {
						if seen[key] {
							t.Errorf("%s has two filter chains with the %s", l.GetName(), key)
						}
						seen[key] = true
					}
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
