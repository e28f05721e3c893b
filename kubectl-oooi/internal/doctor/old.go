package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

func init() {
	register(
		Check{
			Code: "OOOI-OLD-001", Title: "no workloads of the earlier operator exist", Reads: in(AtInfra, deployments, services),
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, kind := range []Kind{deployments, services} {
					for _, u := range s.list(kind, AtInfra) {
						if !strings.HasPrefix(u.GetName(), s.Infra.Name+"-") && (s.Standalone == nil || !strings.HasSuffix(u.GetName(), s.Infra.Name)) || !setup.OwnedByOperator(u) {
							continue
						}
						findings = append(findings, failed(refTo(u), "stop the earlier operator, and delete its DHCPServer, DNSServer and ProxyServer: docs/how-to/migrate.md", "the object belongs to the earlier operator, which may still use an address of the VLAN"))
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-OLD-002", Title: "no objects of deleted Infras exist", After: []string{"OOOI-API-001"},
			Reads: slices.Concat(in(Everywhere, infras), in(AtInfra, proxyServers, statefulSets, services)),
			Run:   checkOrphans,
		},
		Check{
			Code: "OOOI-OLD-003", Title: "the APIs of the earlier operator are deleted", After: []string{"OOOI-OLD-001"}, Reads: in(Everywhere, crds),
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, u := range s.list(crds, Everywhere) {
					if slices.Contains(operatorCRDs(), u.GetName()) {
						findings = append(findings, warned(refTo(u), "delete the CustomResourceDefinition when you no longer need to roll back: kubectl delete crd "+u.GetName()+"; see docs/how-to/migrate.md",
							"the CustomResourceDefinition of the earlier operator exists, but no component of oooi reads objects of its kind"))
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-OLD-004", Title: "control has cleaned up hosted clusters", Component: componentControl, After: []string{"OOOI-CTL-001", "OOOI-NODE-003", "OOOI-APP-002"}, Reads: pagesIn(AtSystem, controlState), NotApplicable: noPods(controlState, AtSystem),
			Run: checkHostedCleanup,
		},
	)
}

// checkOrphans finds our StatefulSets and Services in the Infra's namespace whose Infra or standalone ProxyServer does not
// exist. It returns one finding for each kind and owner. Leases may remain: teardown keeps them for the next setup.
func checkOrphans(s *Site) []Finding {
	existing := map[string]bool{}
	for _, u := range slices.Concat(s.list(infras, Everywhere), s.list(proxyServers, AtInfra)) {
		if inventory.Owns(u) {
			existing[u.GetNamespace()+"/"+u.GetName()] = true
		}
	}
	count := map[string]int{}
	first := map[string]model.Ref{}
	add := func(kind Kind, u *unstructured.Unstructured, infra string) {
		if infra == "" || existing[infra] {
			return
		}
		key := kind.Kind + " of " + infra
		count[key]++
		if count[key] == 1 {
			first[key] = refTo(u)
		}
	}
	for _, kind := range []Kind{statefulSets, services} {
		for _, u := range s.list(kind, AtInfra) {
			if u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy {
				add(kind, u, u.GetAnnotations()[v1alpha1.AnnotationInfra])
			}
		}
	}
	var findings []Finding
	for _, key := range slices.Sorted(maps.Keys(count)) {
		_, infra, _ := strings.Cut(key, " of ")
		namespace, name, _ := strings.Cut(infra, "/")
		findings = append(findings, warned(first[key], fmt.Sprintf("run 'kubectl oooi teardown %s -n %s' to delete the remaining objects", name, namespace),
			"the object belongs to %s, but no Infra or standalone ProxyServer of that name exists; objects of this kind: %d", infra, count[key]))
	}
	return findings
}

// checkHostedCleanup finds objects that control could not delete from a hosted cluster: those of this Infra,
// and those in its hosted cluster.
func checkHostedCleanup(s *Site) []Finding {
	type state struct {
		Remains []struct {
			Infra         string `json:"infra"`
			HostedCluster string `json:"hostedCluster"`
			Error         string `json:"error"`
		} `json:"remains"`
	}
	var findings []Finding
	for _, r := range states[state](s, controlState, AtSystem) {
		for _, left := range r.value.Remains {
			in := model.Ref{Kind: hostedClusters.Kind}
			in.Namespace, in.Name, _ = strings.Cut(left.HostedCluster, "/")
			if left.Infra != s.key() && (s.hosted() == nil || in != *s.hosted()) {
				continue
			}
			owner := "deleted Infras"
			if left.Infra != "" {
				owner = "Infra " + left.Infra
			}
			findings = append(findings, warned(in, "wait, because control retries with backoff, or delete the objects manually; to list them in the hosted cluster: kubectl get services,serviceaccounts,roles,rolebindings -A -l "+v1alpha1.LabelManagedBy+"="+v1alpha1.ManagedBy,
				"control cannot delete the objects of %s in the hosted cluster", owner).because(left.Error))
		}
	}
	return findings
}
