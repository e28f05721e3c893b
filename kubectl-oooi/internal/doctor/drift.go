package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/drift"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// codeDrift is the check that requires permission for a server-side dry run.
const codeDrift = "OOOI-INF-002"

var objectsAsRendered = Check{
	Code: codeDrift, Title: "deployed objects match the rendered configuration", Run: func(s *Site) []Finding { return s.drift },
	requested: func(s *Site) bool { return s.drift != nil || s.undrifted != "" },
	About: "doctor applies setup's objects as a server-side dry run, and prints the fields that would change, with the client that " +
		"set them. Fields that other clients add are ignored. The check is skipped if the user cannot patch the objects, and does not run for " +
		"more than ten Infras at once.",
}

// forceRemedy is the remedy for fields that other clients have set.
const forceRemedy = "run 'kubectl oooi setup -f FILE --force-conflicts' with the Infra's file, which takes the fields from other clients; " +
	"'kubectl oooi diff -f FILE' shows the changes before"

// DriftFindings returns a finding for each difference of a site, and why the objects could not be compared; empty if they were compared.
// Only objects of a component that are missing, or edited while its pods are not ready, are failures.
func DriftFindings(s *site.Site, r *drift.Report) (findings []Finding, failure string) {
	findings = []Finding{}
	if r.Refused != "" {
		return append(findings, warned(s.Ref(), "correct the fault that the message names; "+forceRemedy, "setup would reject the object: %s", r.Refused)), ""
	}
	for i := range r.Differences {
		d := &r.Differences[i]
		var f Finding
		switch d.Change {
		case drift.Missing:
			f = failed(d.Object, setupRemedy, "the object does not exist")
		case drift.Extra:
			f = warned(d.Object, setupRemedy, "setup would delete the object")
			if d.Object.Kind == site.StatefulSets.Kind {
				f = f.withEvidence("its pods may have the address of another pod")
			}
		case drift.Outdated:
			f = warned(d.Object, setupRemedy, "an older version of kubectl-oooi deployed it")
		default:
			f = warned(d.Object, forceRemedy, "fields differ from those that setup would apply")
			if d.Object == s.Ref() && len(r.Differences) > 1 {
				f = failed(d.Object, "undo the change, or apply it with setup: "+forceRemedy,
					"the object was changed after the last setup; running setup would change the objects below")
			}
			if d.Object.Kind == site.Services.Kind || d.Component != "" && !allReady(s.Pods(d.Component)) { // a Service may select other pods
				f.Severity = Fail
			}
		}
		if d.Object.Kind == "PodDisruptionBudget" {
			f.Severity = Warn
		}
		f.Component = cmp.Or(d.Component, componentOther) // a difference in a shared object does not explain a failure
		for _, field := range d.Fields {
			f = f.withEvidence(fieldText(&field))
		}
		findings = append(findings, f)
	}
	return findings, r.Unread
}

// allReady reports whether there are pods, and all are ready.
func allReady(pods []*corev1.Pod) bool {
	return len(pods) > 0 && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !status.PodReady(p) })
}

// fieldText returns a field with its values, and the client that set the present value.
func fieldText(f *drift.Field) string {
	text := fmt.Sprintf("%s: found %s, setup would apply %s", f.Path, cmp.Or(f.Found, "nothing"), cmp.Or(f.Rendered, "nothing"))
	if f.Manager != "" {
		text += "; set by " + f.Manager
	}
	return text
}

var noOrphans = Check{
	Code: "OOOI-OLD-002", Title: "no objects of deleted Infras exist", Component: componentOther, Run: checkOrphans,
	Reads: slices.Concat(site.In(site.Everywhere, site.Infras), site.In(site.AtInfra, site.ProxyServers, site.StatefulSets, site.Services)),
	About: "If an Infra is deleted without teardown, its pods keep running and keep their VLAN addresses. DHCP leases may remain: teardown keeps them " +
		"for the next setup.",
}

func checkOrphans(s *Site) []Finding {
	existing := map[string]bool{}
	for _, u := range slices.Concat(s.List(site.Infras, site.Everywhere), s.List(site.ProxyServers, site.AtInfra)) {
		if inventory.Owns(u) {
			existing[u.GetNamespace()+"/"+u.GetName()] = true
		}
	}
	orphans := map[string][]model.Ref{} // by owner
	for _, u := range slices.Concat(s.List(site.StatefulSets, site.AtInfra), s.List(site.Services, site.AtInfra)) {
		owner := u.GetAnnotations()[v1alpha1.AnnotationInfra]
		if u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && owner != "" && !existing[owner] {
			orphans[owner] = append(orphans[owner], site.RefTo(u))
		}
	}
	var findings []Finding
	for _, owner := range slices.Sorted(maps.Keys(orphans)) {
		refs := orphans[owner]
		findings = append(findings, warned(refs[0], fmt.Sprintf("run 'kubectl oooi teardown %s -n %s' to delete the remaining "+
			"objects", nameOf(owner), refs[0].Namespace),
			"the object belongs to %s, but no Infra or standalone ProxyServer has this name; %d StatefulSets and Services remain", owner, len(refs)))
	}
	return findings
}

// nameOf returns the name in "namespace/name".
func nameOf(key string) string {
	return key[strings.Index(key, "/")+1:]
}

var hostedClustersClean = problemCheck(Check{
	Code: "OOOI-OLD-004", Title: "control has cleaned up hosted clusters", Component: componentOther,
	About: "Control deletes the apps Service and its ServiceAccount from a hosted cluster when the Infra no longer needs them, and retries until that succeeds.",
})

var scenariosPass = Check{
	Code: "OOOI-PRB-001", Title: "the quick scenarios of 'kubectl oooi test' pass", InfraOnly: true, Run: func(s *Site) []Finding { return s.probe },
	requested: func(s *Site) bool { return s.probe != nil },
	About: "With `--probe`, a short-lived pod on the VLAN requests an address, queries names and connects to the control plane like a " +
		"VM. `kubectl oooi test` shows each request.",
}

// scenarioComponents are the components that scenarios test, by the prefix of the scenarios' names.
var scenarioComponents = map[string]string{"dhcp": v1alpha1.ComponentDHCP, "dns": v1alpha1.ComponentDNS, "tls": v1alpha1.ComponentProxy, "apps": componentApps}

// ProbeFinding returns the finding about a scenario that failed or could not run. An empty remedy means that the scenario could not run.
func ProbeFinding(s *site.Site, scenario, message, remedy string, evidence []string) Finding {
	f := failed(s.Ref(), remedy, "scenario %s: %s", scenario, message).withEvidence(evidence...)
	if remedy == "" {
		f.Remedy = "make sure that the test's pods can run, and run doctor again"
	}
	group, _, _ := strings.Cut(scenario, "-")
	return f.forComponent(scenarioComponents[group])
}
