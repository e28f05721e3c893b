package model_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

// The Infra and the hosted cluster of HyperShift's fixtures.
var (
	fixtureSite    = lab.Site{Name: "test"}
	fixtureCluster = lab.HostedCluster{Namespace: "clusters", Name: "test", BaseDomain: "example.com", Publishing: map[string]string{
		"OAuthServer":  lab.PublishedRoute("oauth.test.example.com"),
		"Konnectivity": lab.PublishedRoute("konnectivity.test.example.com"),
	}}
)

// TestHyperShiftsControlPlanes serves the Services and Routes that HyperShift's reconcilers write: their golden files are in HyperShift's
// module. The code for AWS with public endpoints is the one for KubeVirt.
func TestHyperShiftsControlPlanes(t *testing.T) {
	for _, tc := range []struct {
		fixture string
		api     string // its publishing strategy
		want    []string
	}{
		{"AWS_Public_Route", lab.PublishedRoute("api.test.example.com"), []string{
			"api.test.example.com:443 kube-apiserver", "oauth.test.example.com:443 oauth-openshift",
			"konnectivity.test.example.com:443 konnectivity-server",
		}},
		{"AWS_Public_KAS_LoadBalancer", "", []string{
			"api.test.example.com:6443 kube-apiserver", "oauth.test.example.com:443 oauth-openshift",
			"konnectivity.test.example.com:443 konnectivity-server",
		}},
	} {
		t.Run(tc.fixture, func(t *testing.T) {
			c := fixtureCluster
			c.Publishing = maps.Clone(c.Publishing)
			c.Publishing["APIServer"] = tc.api
			checkControlPlane(t, fixtureSite, c.YAML(), hypershiftFixtures(t, tc.fixture), tc.want)
		})
	}
}

// TestPublishingStrategies serves what HyperShift writes on KubeVirt for each publishing strategy.
func TestPublishingStrategies(t *testing.T) {
	want := map[string][]string{
		"cli-default": {"ignition-server-clusters-demo.apps.mgmt.example.com:443 ignition-server-proxy"},
		"load-balancer": {
			"api.demo.example.com:6443 kube-apiserver", "oauth.demo.example.com:443 oauth-openshift",
			"konnectivity.demo.example.com:8091 konnectivity-server", "ignition.demo.example.com:443 ignition-server-proxy",
		},
		"node-port": {
			"nodes.mgmt.example.com:31443 kube-apiserver", "nodes.mgmt.example.com:31501 oauth-openshift",
			"nodes.mgmt.example.com:31500 konnectivity-server", "nodes.mgmt.example.com:31446 ignition-server-proxy",
		},
		"route": {
			"api.demo.example.com:443 kube-apiserver", "oauth.demo.example.com:443 oauth-openshift",
			"konnectivity.demo.example.com:443 konnectivity-server", "ignition.demo.example.com:443 ignition-server-proxy",
		},
	}
	for _, name := range lab.HyperShiftCases {
		t.Run(name, func(t *testing.T) {
			written, objects := lab.HyperShiftObjects(t, name)
			text, err := yaml.Marshal(written.Object)
			lab.Must(t, err)
			site := lab.Site{}
			hostedCluster := lab.Merge(strings.TrimSuffix(site.HostedCluster().YAML(), "---\n"), string(text))
			checkControlPlane(t, site, hostedCluster, objects, want[name])
		})
	}
}

// hypershiftFixtures returns the Services and Routes in the golden files of HyperShift's infrastructure and of the components
// that have their own. Routes without a host get the one that OpenShift generates.
func hypershiftFixtures(t *testing.T, infrastructure string) (list []*unstructured.Unstructured) {
	t.Helper()
	hypershift, err := lab.ModuleDir(t.Context(), "github.com/openshift/hypershift")
	lab.Must(t, err)
	dir := filepath.Join(hypershift, "control-plane-operator", "controllers", "hostedcontrolplane")
	text, err := os.ReadFile(filepath.Join(dir, "infra", "testdata", "zz_fixture_TestReconcileInfrastructure_"+infrastructure+".yaml"))
	lab.Must(t, err)
	var infra struct {
		Services, Routes struct{ Items []map[string]any }
	}
	lab.Must(t, yaml.Unmarshal(text, &infra))
	for _, s := range infra.Services.Items {
		s["apiVersion"], s["kind"] = "v1", "Service"
		list = append(list, &unstructured.Unstructured{Object: s})
	}
	for _, r := range infra.Routes.Items {
		r["apiVersion"], r["kind"] = "route.openshift.io/v1", "Route"
		list = append(list, &unstructured.Unstructured{Object: r})
	}
	for _, component := range []string{"ignition-server/ignition_server_route", "ignition-server-proxy/ignition_server_proxy_service",
		"metrics-proxy/metrics_proxy_route", "metrics-proxy/metrics_proxy_service"} {
		folder, file, _ := strings.Cut(component, "/")
		text, err := os.ReadFile(filepath.Join(dir, "testdata", folder, "zz_fixture_TestControlPlaneComponents_"+file+".yaml"))
		lab.Must(t, err)
		objects, err := lab.ParseYAML(text)
		lab.Must(t, err)
		list = append(list, objects...)
	}
	for _, o := range list {
		o.SetNamespace(fixtureCluster.ControlPlaneNamespace())
		if host, _, _ := unstructured.NestedString(o.Object, "spec", "host"); o.GetKind() == "Route" && host == "" {
			lab.Must(t, unstructured.SetNestedField(o.Object, o.GetName()+"-"+o.GetNamespace()+".apps.mgmt.example.com", "spec", "host"))
		}
	}
	return list
}

// checkControlPlane checks the names and routes of a hosted cluster with the Services and Routes of its control plane: all hosts of Routes
// resolve to the proxy in both views, and are routed to the Service of the Route, as are the endpoints in want, "HOST:PORT SERVICE".
func checkControlPlane(t *testing.T, site lab.Site, hostedCluster string, objects []*unstructured.Unstructured, want []string) {
	t.Helper()
	stream := hostedCluster + site.Infra() + site.ProxyServer() + lab.Service("clusters", site.HostedCluster().Name+"-proxy", 443, "spec: {clusterIP: 10.96.0.9}")
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		lab.Must(t, err)
		stream += string(text) + "---\n"
		host, _, _ := unstructured.NestedString(o.Object, "spec", "host")
		if service, _, _ := unstructured.NestedString(o.Object, "spec", "to", "name"); o.GetKind() == "Route" && !strings.HasSuffix(host, ".hypershift.local") {
			want = append(want, host+":443 "+service)
		}
	}
	dir := t.TempDir()
	lab.Must(t, os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(stream), 0o600))
	options := model.Options{Proxies: true}
	in, err := watch.ReadManifests(dir, options)
	lab.Must(t, err)
	s := model.Build(in, options)
	if len(s.Problems) > 0 {
		t.Errorf("problems: %v", s.Problems)
	}
	if len(s.ProxyServers) != 1 || len(s.VLANs) != 1 {
		t.Fatalf("%d proxies on %d VLANs", len(s.ProxyServers), len(s.VLANs))
	}
	proxy := s.ProxyServers[0]
	for _, u := range proxy.Upstreams {
		if u.Missing != "" {
			t.Errorf("upstream %s: %s", u.Name, u.Missing)
		}
	}
	slices.Sort(want)
	for _, endpoint := range slices.Compact(want) {
		at, service, _ := strings.Cut(endpoint, " ")
		host, _, _ := strings.Cut(at, ":")
		if got, want := addresses(s.Pod(), host), "[10.96.0.9]"; got != want {
			t.Errorf("for pods, %s has the addresses %s, want %s", host, got, want)
		}
		if got, want := addresses(s.VLANs[0].View, host), "["+site.IP(4)+"]"; got != want {
			t.Errorf("on the VLAN, %s has the addresses %s, want %s", host, got, want)
		}
		if got, want := destination(proxy, at), site.ControlPlaneNamespace()+"/"+service; got != want {
			t.Errorf("%s is routed to Service %q, want %s", at, got, want)
		}
	}
	for _, v := range []*model.View{s.Pod(), s.VLANs[0].View} {
		for _, n := range v.Names {
			if strings.HasSuffix(n.Name, ".hypershift.local") {
				t.Errorf("%s is published, although clusters with the same name share it", n.Name)
			}
		}
	}
}

// addresses returns the addresses of a name in a view, "none" if it does not exist.
func addresses(v *model.View, name string) string {
	for _, n := range v.Names {
		if n.Name == name {
			return fmt.Sprint(n.Addresses)
		}
	}
	return "none"
}

// destination returns the Service to which the proxy routes "HOST:PORT"; empty without a route.
func destination(p *model.ProxyServer, endpoint string) string {
	for _, l := range p.Listeners {
		for _, r := range l.Routes {
			if fmt.Sprintf("%s:%d", r.Host, l.Port) != endpoint {
				continue
			}
			for _, u := range p.Upstreams {
				if u.Name == r.Upstream {
					return u.Service
				}
			}
		}
	}
	return ""
}
