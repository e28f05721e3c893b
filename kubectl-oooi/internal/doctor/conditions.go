package doctor

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// conditionCheck returns a check that prints a condition of the Infra that is false, unless its reason is a problem that
// another check prints.
func conditionCheck(c Check, kind string) Check {
	c.InfraOnly, c.Outdated = true, conditionsOutdated
	c.Reads = slices.Concat(site.In(site.AtInfra, site.Infras), problemReads)
	c.Run = func(s *Site) []Finding {
		return s.conditionFindings(c.Component, s.Ref(), s.Infra.Status.Conditions, kind)
	}
	return c
}

// proxyConditionCheck is conditionCheck for a condition of the ProxyServers.
func proxyConditionCheck(c Check, kind string) Check {
	c.Outdated, c.Component = conditionsOutdated, v1alpha1.ComponentProxy
	c.Reads = slices.Concat(site.In(site.AtInfra, site.ProxyServers), problemReads)
	c.Run = func(s *Site) []Finding {
		var findings []Finding
		for _, p := range s.Proxies() {
			findings = append(findings, s.conditionFindings(c.Component, site.RefOf(site.ProxyServers, p), p.Status.Conditions, kind)...)
		}
		return findings
	}
	return c
}

// conditionFindings returns a finding if a condition is false.
func (s *Site) conditionFindings(component string, ref model.Ref, conditions []metav1.Condition, kind string) []Finding {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != metav1.ConditionFalse || s.hasProblem(c.Reason) {
		return nil
	}
	logs := fmt.Sprintf("-n %s logs -l %s --all-containers --prefix --tail=100", ref.Namespace, s.Labels(component).AsSelector())
	if component == componentApps {
		logs = "-n " + render.SystemNamespace + " logs deployment/" + render.ControlName
	}
	return []Finding{failed(ref, "correct the fault that the message names; for details, see the logs: kubectl "+logs, "%s: %s", c.Reason, c.Message)}
}

// conditionsOutdated returns why conditions may be outdated: control does not run, cannot write them, or has not observed the Infra.
// The result is empty if conditions are current.
func conditionsOutdated(s *Site) string {
	for _, c := range []Check{controlRuns, controlLeads, statusesWritten, controlObserved} {
		if findings := c.Run(s); slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Fail }) {
			return fmt.Sprintf("conditions are outdated, see %s", c.Code)
		}
	}
	return ""
}
