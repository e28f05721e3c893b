package doctor

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// BenchmarkDiagnose runs all checks of each Infra on facts in memory.
func BenchmarkDiagnose(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			facts := NewFacts(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			for i := range n {
				for _, text := range []string{
					"apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: c%[1]d, namespace: clusters}\n" +
						"spec: {hostedClusterRef: {name: c%[1]d, namespace: clusters}, networkConfig: {cidr: 10.%[1]d.0.0/24, gateway: 10.%[1]d.0.1, networkAttachmentDefinition: vlan%[1]d}, " +
						"infraComponents: {proxy: {serverIP: 10.%[1]d.0.4}, dns: {serverIP: 10.%[1]d.0.3}, dhcp: {serverIP: 10.%[1]d.0.2, rangeStart: 10.%[1]d.0.10, rangeEnd: 10.%[1]d.0.250}}}\n",
					"apiVersion: hypershift.openshift.io/v1beta1\nkind: HostedCluster\nmetadata: {name: c%[1]d, namespace: clusters}\nspec: {dns: {baseDomain: example.com}}\n",
					"apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: ProxyServer\nmetadata: {name: c%[1]d, namespace: clusters}\nspec: {infraRef: {name: c%[1]d}, networkConfig: {serverIP: 10.%[1]d.0.4}}\n",
				} {
					u := &unstructured.Unstructured{}
					if err := yaml.Unmarshal(fmt.Appendf(nil, text, i), &u.Object); err != nil {
						b.Fatal(err)
					}
					facts.add(u)
				}
			}
			names, checks := facts.Infras("", ""), orderedChecks(b)
			for b.Loop() {
				facts.snapshot = nil
				for _, name := range names {
					Diagnose(NewSite(facts, name), checks, func(string) bool { return true })
				}
			}
		})
	}
}
