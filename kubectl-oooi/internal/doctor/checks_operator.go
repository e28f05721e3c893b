package doctor

import (
	"strings"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

func operatorChecks() []Check {
	return []Check{{
		Code: "OOOI-OLD-001", Title: "no workloads of the earlier operator exist", Reads: in(AtInfra, deployments, services),
		Run: func(s *Site) []Finding {
			var findings []Finding
			for _, kind := range []Kind{deployments, services} {
				for _, u := range s.list(kind, AtInfra) {
					if !strings.HasPrefix(u.GetName(), s.Infra.Name+"-") || !setup.OwnedByOperator(u) {
						continue
					}
					ref := model.Ref{Kind: kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
					findings = append(findings, failed(ref, "stop the earlier operator, and delete its DHCPServer, DNSServer and ProxyServer: docs/how-to/migrate.md", "the object belongs to the earlier operator, which may still use an address of the VLAN"))
				}
			}
			return findings
		},
	}}
}
