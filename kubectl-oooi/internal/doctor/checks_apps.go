package doctor

import (
	"github.com/densityops/oooi/api/v1alpha1"
)

func appsChecks() []Check {
	return []Check{{
		Code: "OOOI-APP-001", Title: "the applications have their address", Needs: []string{"OOOI-CTL-002"}, After: []string{"OOOI-HC-002"}, Reads: in(AtInfra, infras),
		Applies: func(s *Site) string {
			if s.Infra.Spec.AppsIngress.IsEnabled() {
				return ""
			}
			return "appsIngress is disabled in the Infra"
		},
		Run: func(s *Site) []Finding {
			const remedy = "docs/apps-ingress.md says what to do for each reason"
			is := s.Infra.Status.AppsIngress
			switch {
			case is == nil:
				return []Finding{failed(s.ref(), remedy, "control has said nothing of them yet")}
			case is.Phase == v1alpha1.AppsIngressReady:
				return nil
			case len(is.ExternalIPs) > 0: // the last that was good is served
				return []Finding{warned(s.ref(), remedy, "%s: %s: %s; the last address that was good is served", is.Phase, is.Reason, is.Message)}
			default:
				return []Finding{failed(s.ref(), remedy, "%s: %s: %s", is.Phase, is.Reason, is.Message)}
			}
		},
	}}
}
