package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// TestNestedClusterDomains checks which cluster has the names of a cluster domain that lies in another cluster's domain, on a
// server that sees both.
func TestNestedClusterDomains(t *testing.T) {
	outer := testCluster{name: "a", domain: "a.lab.example.com"}
	inApps := testCluster{name: "apps", domain: "apps.a.lab.example.com"}
	belowApps := testCluster{name: "b", domain: "b.apps.a.lab.example.com", host: "kas.example.org"}
	beside := testCluster{name: "b", domain: "b.a.lab.example.com"}
	for _, tc := range []struct {
		name     string
		clusters []testCluster // the youngest first
		zones    []string
		names    map[string]string // owner of names
		overlap  string            // the older cluster of a refused domain
	}{
		{"a younger cluster is the apps domain", []testCluster{inApps, outer}, []string{"a.lab.example.com"},
			map[string]string{"api.a.lab.example.com": "a", "api.apps.a.lab.example.com": ""}, "a"},
		{"a younger cluster is in the apps domain", []testCluster{belowApps, outer}, []string{"a.lab.example.com", "kas.example.org"},
			map[string]string{"api.a.lab.example.com": "a", "api.b.apps.a.lab.example.com": "", "kas.example.org": "b", "ns.dns.kas.example.org": "b"}, "a"},
		{"an older cluster is the apps domain", []testCluster{outer, inApps}, []string{"a.lab.example.com", "apps.a.lab.example.com"},
			map[string]string{"api.a.lab.example.com": "a", "api.apps.a.lab.example.com": "apps", "oauth-openshift.apps.apps.a.lab.example.com": "apps"}, ""},
		{"a younger cluster beside the apps domain", []testCluster{beside, outer}, []string{"a.lab.example.com", "b.a.lab.example.com"},
			map[string]string{"api.a.lab.example.com": "a", "api.b.a.lab.example.com": "b", "oauth-openshift.apps.b.a.lab.example.com": "b"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var documents []string
			for age, c := range tc.clusters {
				documents = append(documents, c.yaml(age))
			}
			options := model.Options{Apps: &model.AppsOptions{}}
			s := model.Build(readObjectsFor(t, options, documents...), options)
			owners, zones := map[string]string{}, []string{}
			for _, n := range s.Pod().Names {
				owners[n.Name] = n.Cluster.Name
			}
			for _, z := range s.Pod().Zones {
				zones = append(zones, z.Origin)
			}
			if slices.Sort(zones); !slices.Equal(zones, tc.zones) {
				t.Errorf("zones %v, want %v", zones, tc.zones)
			}
			for name, owner := range tc.names {
				if owners[name] != owner {
					t.Errorf("%s belongs to %q, want %q", name, owners[name], owner)
				}
			}
			for _, a := range s.Pod().Apps {
				if tc.overlap != "" && a.Cluster.Name != tc.overlap {
					t.Errorf("apps name %s belongs to %s", a.Name, a.Cluster)
				}
			}
			reported := map[model.Reason]string{}
			for _, p := range s.Problems {
				if strings.Contains(p.Message, "cluster domain") {
					reported[p.Reason] += p.Object.Name
				}
			}
			younger := ""
			if tc.overlap != "" {
				younger = tc.clusters[0].name
			}
			if reported[model.ReasonDomainOverlap] != tc.overlap || reported[model.ReasonNameConflict] != younger {
				t.Errorf("problems %v", s.Problems)
			}
		})
	}
}

func TestComponentRoutesDoNotTakeNames(t *testing.T) {
	older := testCluster{name: "older", domain: "older.example.com"}.yaml(1)
	for hostname, published := range map[string]bool{
		"console.example.org": true, "console.younger.example.com": true, "console.example.net.": true,
		"console.older.example.com": false, "shop.apps.older.example.com": false, "kubernetes.default.svc.cluster.local": false, "*.example.org": false,
	} {
		younger := strings.Replace(testCluster{name: "younger", domain: "younger.example.com"}.yaml(0), "ingress: {",
			"ingress: {componentRoutes: [{namespace: openshift-console, name: console, hostname: '"+hostname+"'}], ", 1)
		options := model.Options{Apps: &model.AppsOptions{}}
		s := model.Build(readObjectsFor(t, options, younger, older), options)
		for _, v := range []*model.View{s.Pod(), s.VLANs[0].View} {
			if got := slices.ContainsFunc(v.Apps, func(a model.App) bool { return a.Name == strings.TrimSuffix(hostname, ".") && a.Served }); got != published {
				t.Errorf("%s is published: %t", hostname, got)
			}
		}
	}
}

// TestRoutesOfComponentRoutesAndSubdomains checks that the proxy routes custom hostnames of components, and Routes whose host is
// only in their status, instead of passing them to the API server.
func TestRoutesOfComponentRoutesAndSubdomains(t *testing.T) {
	cluster := strings.Replace(testCluster{name: "demo", domain: "demo.example.com"}.yaml(0), "ingress: {", `ingress: {componentRoutes: [
      {namespace: openshift-console, name: console, hostname: Console.example.org},
      {namespace: openshift-authentication, name: oauth-openshift, hostname: login.example.org}], `, 1)
	options := model.Options{Apps: &model.AppsOptions{}, Proxies: true}
	s := model.Build(readObjectsFor(t, options, cluster, `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: demo, namespace: clusters}
spec: {infraRef: {name: demo}, networkConfig: {serverIP: 192.0.2.10, networkAttachmentName: shared}}
`, `
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: registry, namespace: clusters-demo}
spec: {subdomain: registry, port: {targetPort: registry}, to: {kind: Service, name: registry}}
status: {ingress: [{host: registry.apps.mgmt.example.com, conditions: [{type: Admitted, status: "True"}]}]}
`), options)
	upstreams := map[string]string{}
	for _, l := range s.ProxyServer("clusters/demo").Listeners {
		for _, r := range l.Routes {
			upstreams[fmt.Sprintf("%d %s", l.Port, r.Host)] = r.Upstream
		}
	}
	for route, upstream := range map[string]string{
		"443 console.example.org": "infra/clusters/demo/apps-https", "80 console.example.org": "infra/clusters/demo/apps-http",
		"443 login.example.org": "clusters-demo/oauth-openshift/6443", "6443 login.example.org": "clusters-demo/oauth-openshift/6443",
		"443 registry.apps.mgmt.example.com": "clusters-demo/registry/registry",
	} {
		if upstreams[route] != upstream {
			t.Errorf("%s leads to %q, want %q", route, upstreams[route], upstream)
		}
	}
}

func TestStaticAppsAddresses(t *testing.T) {
	in := readObjects(t, testCluster{name: "demo", domain: "demo.example.com"}.yaml(0))
	for address, accepted := range map[string]bool{
		"192.0.2.80": true, "203.0.113.1": true, "2001:db8::1": true,
		"127.0.0.1": false, "::1": false, "169.254.1.1": false, "fe80::1": false, "240.0.0.1": false, "255.255.255.255": false, "224.0.0.1": false, "0.0.0.0": false,
	} {
		in.Infras[0].Spec.AppsIngress.Addresses = []v1alpha1.IP{v1alpha1.IP(address)}
		for _, options := range []model.Options{{}, {Apps: &model.AppsOptions{}}} { // setup builds without apps
			s := model.Build(in, options)
			reported := slices.ContainsFunc(s.Problems, func(p model.Problem) bool { return p.Reason == model.ReasonInvalidAddress })
			if reported == accepted {
				t.Errorf("%s: %v", address, s.Problems)
			}
			if apps := s.Clusters[0].Apps; apps != nil && (len(apps.Addresses) > 0) != accepted {
				t.Errorf("%s resolves to %v", address, apps.Addresses)
			}
		}
	}
}
