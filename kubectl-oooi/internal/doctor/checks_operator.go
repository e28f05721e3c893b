package doctor

import (
	"strings"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

func operatorChecks() []Check {
	return []Check{{
		Code: "OOOI-OLD-001", Title: "nothing of the old operator is left", Reads: in(AtInfra, deployments, services),
		Run: func(s *Site) []Finding {
			var findings []Finding
			for _, kind := range []Kind{deployments, services} {
				for _, u := range s.list(kind, AtInfra) {
					if !strings.HasPrefix(u.GetName(), s.Infra.Name+"-") || !setup.OwnedByOperator(u) {
						continue
					}
					ref := model.Ref{Kind: kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
					findings = append(findings, failed(ref, "stop that operator, and delete its DHCPServer, DNSServer and ProxyServer: docs/how-to/migrate.md", "it is the old operator's, and may hold an address of the VLAN"))
				}
			}
			return findings
		},
	}}
}
