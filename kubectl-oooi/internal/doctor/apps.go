package doctor

import (
	"github.com/densityops/oooi/api/v1alpha1"
)

var appsReady = appsCheck()

// appsCheck returns the check of condition AppsIngressReady.
func appsCheck() Check {
	c := conditionCheck(Check{
		Code: "OOOI-APP-001", Title: "the apps address is assigned and announced", Component: componentApps,
		About: "Condition AppsIngressReady. Its reason names the fault, for example missing credentials for the hosted cluster, or an address that no node " +
			"announces.",
	}, v1alpha1.ConditionAppsIngressReady)
	all := c.Run
	c.Run = func(s *Site) []Finding {
		if !s.Infra.Spec.AppsIngress.IsEnabled() {
			return nil
		}
		if state := s.Infra.Status.AppsIngress; state != nil && state.Phase == v1alpha1.AppsIngressPending {
			return nil // until the address deadline
		}
		return all(s)
	}
	return c
}
