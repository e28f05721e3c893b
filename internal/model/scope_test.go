package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

func build(in *model.Objects, scope model.Scope) *model.Snapshot {
	return model.Build(in, model.Options{Scope: scope})
}

// conflictingObjects returns three clusters and three Infras that claim each other's names.
func conflictingObjects(t *testing.T) *model.Objects {
	t.Helper()
	in, err := watch.ReadManifests("testdata/conflicts", model.Options{})
	lab.Must(t, err)
	return in
}

func TestScope(t *testing.T) {
	for _, tc := range []struct {
		name             string
		scope            model.Scope
		clusters, infras []string
	}{
		{"everything", model.Scope{}, []string{"old/demo", "young/demo", "young/thief"}, []string{"old/old", "young/thief", "young/young"}},
		{"an Infra, with the cluster that it serves", model.Scope{Infras: []string{"young/thief"}}, []string{"young/thief"}, []string{"young/thief"}},
		{"a cluster, without any Infra", model.Scope{HostedClusters: []string{"old/demo"}}, []string{"old/demo"}, nil},
		{"a cluster and an Infra", model.Scope{HostedClusters: []string{"old/demo"}, Infras: []string{"old/old"}}, []string{"old/demo"}, []string{"old/old"}},
		{"a cluster and the Infra of another", model.Scope{HostedClusters: []string{"old/demo"}, Infras: []string{"young/thief"}}, []string{"old/demo"}, []string{"young/thief"}},
		{"objects that do not exist", model.Scope{HostedClusters: []string{"a/b"}, Infras: []string{"c/d"}}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := build(conflictingObjects(t), tc.scope)
			var clusters, infras []string
			for _, c := range s.Clusters {
				clusters = append(clusters, c.Key())
			}
			for _, i := range s.Infras {
				infras = append(infras, i.Key())
			}
			if !slices.Equal(clusters, tc.clusters) || !slices.Equal(infras, tc.infras) {
				t.Errorf("clusters %v and Infras %v, want %v and %v", clusters, infras, tc.clusters, tc.infras)
			}
		})
	}
}

// TestBackendOutOfScope builds a ProxyServer for a proxy that reads the namespaces of its backends only, to which a
// backend in another namespace was added.
func TestBackendOutOfScope(t *testing.T) {
	const objects = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: own, namespace: proxies}
spec:
  networkConfig: {serverIP: 192.0.2.3/24}
  backends:
  - {name: old, hostname: a.example.com, port: 443, targetService: web, targetPort: 443, targetNamespace: apps}
  - {name: api, hostname: b.example.com, port: 443, targetService: web, targetPort: 443, targetNamespace: clusters-demo}
  - {name: new, hostname: c.example.com, port: 443, targetService: web, targetPort: 443, targetNamespace: tools}
`
	in := readObjectsFor(t, model.Options{Proxies: true}, objects)
	missing := func(scope model.Scope) (names []string) {
		s := model.Build(in, model.Options{Proxies: true, Scope: scope})
		for _, u := range s.ProxyServers[0].Upstreams {
			if model.NamespaceOutOfScope(u.Missing) {
				names = append(names, u.Backend)
			}
		}
		for _, p := range s.Problems {
			if p.Reason == model.ReasonNamespaceOutOfScope && !strings.Contains(p.Message, "spec.backends[2] new: the proxy does not read namespace tools: run 'kubectl oooi setup'") {
				t.Errorf("problem %s", p)
			}
		}
		return names
	}
	if names := missing(model.Scope{ProxyServers: []string{"proxies/own"}}); len(names) > 0 {
		t.Errorf("without a limit, %v are out of scope", names)
	}
	if names := missing(model.Scope{ProxyServers: []string{"proxies/own"}, Namespaces: []string{"apps"}, HostedClusters: []string{"clusters/demo"}}); !slices.Equal(names, []string{"new"}) {
		t.Errorf("%v are out of scope, want new", names)
	}
}

func TestNameOfAClusterOutOfScopeIsFree(t *testing.T) {
	name := func(s *model.Snapshot) string {
		for _, n := range s.Pod().Names {
			if n.Name == "api.demo.example.com" {
				return fmt.Sprint(n.Cluster.Key(), n.Addresses)
			}
		}
		return "not served"
	}
	for _, tc := range []struct {
		scope model.Scope
		want  string
	}{
		{model.Scope{}, "old/demo[10.96.0.1]"}, // the oldest
		{model.Scope{Infras: []string{"young/thief", "young/young"}}, "young/demo[10.96.0.3]"},
		{model.Scope{Infras: []string{"young/thief"}}, "young/thief[10.96.0.2]"},
	} {
		if got := name(build(conflictingObjects(t), tc.scope)); got != tc.want {
			t.Errorf("in scope %v the name belongs to %s, want %s", tc.scope, got, tc.want)
		}
	}
}

func TestEmptyObjectsMakeAnEmptySnapshot(t *testing.T) {
	s := build(&model.Objects{}, model.Scope{})
	if s.Pod() == nil || len(s.Pod().Zones)+len(s.Pod().Names)+len(s.VLANs)+len(s.Clusters)+len(s.Infras)+len(s.Problems) != 0 {
		t.Errorf("snapshot is not empty: %+v", s)
	}
}

func TestConsentOfSeveralInfras(t *testing.T) {
	infra := func(namespace, name string, day int) string {
		return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %[2]s, namespace: %[1]s, creationTimestamp: "2026-01-%02[3]dT00:00:00Z"}
spec:
  hostedClusterRef: {name: demo, namespace: clusters}
  networkConfig: {cidr: 192.0.%[3]d.0/24, gateway: 192.0.%[3]d.1, networkAttachmentDefinition: vlan%[3]d}
  infraComponents: {proxy: {serverIP: 192.0.%[3]d.3, internalProxyService: 10.0.0.%[3]d}}
`, namespace, name, day)
	}
	notCreated := func(namespace, name string) string {
		return strings.Replace(infra(namespace, name, 9), `, creationTimestamp: "2026-01-09T00:00:00Z"`, "", 1)
	}
	for _, tc := range []struct {
		name       string
		annotation string
		infras     []string
		serve      []string // the others lack consent
	}{
		{"one of any namespace", "", []string{infra("tenant", "a", 2)}, []string{"tenant/a"}},
		{"two of the HostedCluster's namespace", "", []string{infra("clusters", "a", 2), infra("clusters", "b", 3)}, []string{"clusters/a", "clusters/b"}},
		{"two of one other namespace", "", []string{infra("infra", "a", 2), infra("infra", "b", 3)}, []string{"infra/a", "infra/b"}},
		{"the HostedCluster's namespace precedes an older Infra", "", []string{infra("clusters", "a", 3), infra("tenant", "b", 2)}, []string{"clusters/a"}},
		{"the control plane's namespace precedes an older Infra", "", []string{infra("clusters-demo", "a", 3), infra("tenant", "b", 2)}, []string{"clusters-demo/a"}},
		{"the oldest of two namespaces", "", []string{infra("infra", "a", 3), infra("tenant", "b", 4)}, []string{"infra/a"}},
		{"one that is not created yet is the youngest", "", []string{infra("tenant", "a", 3), notCreated("another", "b")}, []string{"tenant/a"}},
		{"consent by annotation", "tenant/b, other/c", []string{infra("clusters", "a", 2), infra("tenant", "b", 3), infra("other", "d", 4)}, []string{"clusters/a", "tenant/b"}},
		{"consent only by annotation", "tenant/b", []string{infra("infra", "a", 2), infra("tenant", "b", 3)}, []string{"tenant/b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster := strings.Replace(demoCluster, "namespace: clusters,", fmt.Sprintf("namespace: clusters, annotations: {hostedcluster.densityops.com/infras: %q, other: x},", tc.annotation), 1)
			s := model.Build(readObjects(t, append(tc.infras, cluster)...), model.Options{})
			var serve, addresses []string
			for _, i := range s.Infras {
				lacks := slices.ContainsFunc(s.Problems, func(p model.Problem) bool {
					return p.Object == i.Ref && p.Reason == model.ReasonConsentMissing && strings.HasSuffix(p.Message, "list "+i.Key()+" in the HostedCluster's annotation hostedcluster.densityops.com/infras")
				})
				if lacks != (i.Serves == nil) {
					t.Errorf("%s serves %v: %v", i.Key(), i.Serves, s.Problems)
				}
				if i.Serves != nil {
					serve = append(serve, i.Key())
					addresses = append(addresses, i.Proxy.ClusterIPs[0].String())
				}
			}
			if !slices.Equal(serve, tc.serve) {
				t.Errorf("served by %v, want %v", serve, tc.serve)
			}
			for _, n := range s.Pod().Names {
				if n.Name == "api.demo.example.com" && fmt.Sprint(n.Addresses) != fmt.Sprint(addresses) {
					t.Errorf("pods see %v, want %v", n.Addresses, addresses)
				}
			}
		})
	}
}
