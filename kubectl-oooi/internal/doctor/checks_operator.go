package doctor

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

func operatorChecks() []Check {
	return []Check{{
		Code: "OOOI-OLD-001", Title: "nothing of the old operator is left", Reads: in(AtInfra, deployments, services),
		Run: func(s *Site) []Finding {
			var findings []Finding
			for _, kind := range []Kind{deployments, services} {
				for _, u := range s.list(kind, AtInfra) {
					if !strings.HasPrefix(u.GetName(), s.Infra.Name+"-") || !operators(u) {
						continue
					}
					ref := model.Ref{Kind: kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
					findings = append(findings, failed(ref, "stop that operator, and delete its DHCPServer, DNSServer and ProxyServer: docs/migration.md", "it is the old operator's, and may hold an address of the VLAN"))
				}
			}
			return findings
		},
	}}
}

// operators reports whether an object belongs to one of the old operator's kinds.
func operators(u *unstructured.Unstructured) bool {
	for _, o := range u.GetOwnerReferences() {
		if strings.HasPrefix(o.APIVersion, v1alpha1.GroupName+"/") && slices.Contains([]string{"DHCPServer", "DNSServer", "ProxyServer"}, o.Kind) {
			return true
		}
	}
	return false
}
