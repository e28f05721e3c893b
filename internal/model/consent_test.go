package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
)

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
