package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

var apisServed = Check{
	Code: "OOOI-API-001", Title: "the cluster serves oooi's APIs", Reads: site.In(site.Everywhere, site.CRDs), Run: checkAPIs,
	About: "The CustomResourceDefinitions of Infra and ProxyServer exist, are established and serve the version that this release uses. " +
		"Without them, daemons keep their last known state, and setup, teardown and control fail.",
}

func checkAPIs(s *Site) []Finding {
	var findings []Finding
	for _, kind := range []string{"infras", "proxyservers"} {
		name := kind + "." + v1alpha1.GroupName
		ref := model.Ref{Kind: site.CRDs.Kind, Name: name}
		list := s.List(site.CRDs, site.Everywhere)
		at := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool { return u.GetName() == name })
		switch {
		case at < 0:
			findings = append(findings, failed(ref, setupRemedy, "the CustomResourceDefinition does not exist"))
		case conditionStatus(list[at], "Established") != "True":
			findings = append(findings, failed(ref, "see its conditions: kubectl describe crd "+name,
				"the CustomResourceDefinition is not established, so the API server does not serve the resource").withEvidence(conditionTexts(list[at])...))
		case !servesVersion(list[at], v1alpha1.SchemeGroupVersion.Version):
			findings = append(findings, failed(ref, "install the newest release of kubectl-oooi that was ever deployed here, and run 'kubectl oooi setup -f FILE' "+
				"and doctor with it",
				"the CustomResourceDefinition does not serve version %s, which this release requires", v1alpha1.SchemeGroupVersion.Version))
		}
	}
	return findings
}

// setupRemedy is the remedy for objects that setup applies.
const setupRemedy = "run 'kubectl oooi setup -f FILE' with the Infra's file; 'kubectl oooi diff -f FILE' shows the changes before"

var dataReadable = Check{
	Code: "OOOI-API-002", Title: "doctor can read all data that its checks need", Component: componentOther, Run: checkReadable,
	About: "Checks whose data cannot be read are skipped and do not count as passed. ClusterRole `oooi-doctor` in manifests/doctor grants all permissions " +
		"that doctor needs.",
}

func checkReadable(s *Site) []Finding {
	reasons := s.Unread(s.reads)
	if len(reasons) == 0 {
		return nil
	}
	remedy := "run doctor again when the API server responds; if an API is unavailable, see 'kubectl get apiservices'"
	if slices.ContainsFunc(reasons, func(reason string) bool { return strings.Contains(reason, "forbidden") }) {
		remedy = "ask an administrator to bind ClusterRole " + RoleName + " to you (docs/reference/doctor.md)"
	}
	return []Finding{warned(s.Ref(), remedy, "cannot read data that checks need (%d errors): %s", len(reasons), reasons[0]).withEvidence(reasons[1:]...)}
}

var controlRuns = Check{
	Code: "OOOI-CTL-001", Title: "control runs", Component: componentControl, Run: checkControl,
	Reads: slices.Concat(site.In(site.AtSystem, site.Deployments, site.Pods), site.Optional(site.In(site.AtSystem, site.Events, site.Logs))),
	About: "`xdsd control` writes conditions and owns the apps ingress. DHCP, DNS and the proxy work without it.",
}

func checkControl(s *Site) []Finding {
	for _, d := range site.All[appsv1.Deployment](s.Site, site.Deployments, site.AtSystem) {
		if d.Name != render.ControlName {
			continue
		}
		if d.Status.AvailableReplicas > 0 {
			return nil
		}
		ref := site.RefOf(site.Deployments, d)
		if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
			return []Finding{failed(ref, fmt.Sprintf("scale it: kubectl -n %s scale deployment %s --replicas=2", d.Namespace, d.Name),
				"the Deployment is scaled to 0 replicas: conditions are outdated, and the apps ingress is not reconciled")}
		}
		f := failed(ref, fmt.Sprintf("see its pods: kubectl -n %s describe pods", d.Namespace), "no replica of control is available: conditions are "+
			"outdated, and the apps ingress is not reconciled")
		for _, p := range s.ControlPods() {
			if why := s.unready(p); why != nil {
				f = f.withEvidence(fmt.Sprintf("%s: %s", p.Name, why.Message)).withEvidence(why.Evidence...)
			}
		}
		return []Finding{f}
	}
	return []Finding{failed(model.Ref{Kind: site.Deployments.Kind, Namespace: render.SystemNamespace, Name: render.ControlName}, setupRemedy,
		"the Deployment does not exist")}
}

var controlLeads = problemCheck(Check{
	Code: "OOOI-CTL-004", Title: "a replica of control leads", Component: componentControl, Reads: site.In(site.AtSystem, site.Leases, site.Deployments),
	Run: checkLeader,
	Outdated: func(s *Site) string {
		if len(checkControl(s)) > 0 {
			return "control does not run, see OOOI-CTL-001"
		}
		return ""
	},
	About: "One replica holds Lease `oooi-system/oooi-control` and writes all conditions. Control has no leader while another client holds the " +
		"Lease, the API server rejects writes, or connections fail.",
})

// staleLease is the age of the last renewal from which control's Lease counts as stale. It is more than the Lease's duration.
const staleLease = time.Minute

func checkLeader(s *Site) []Finding {
	for _, l := range site.All[coordinationv1.Lease](s.Site, site.Leases, site.AtSystem) {
		if l.Name != render.ControlName || l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || len(s.ControlPods()) == 0 {
			continue
		}
		ref := site.RefOf(site.Leases, l)
		remedy := fmt.Sprintf("find the client that wrote the Lease ('kubectl -n %[1]s get lease %[2]s -o yaml --show-managed-fields'), and delete it: "+
			"kubectl -n %[1]s delete lease %[2]s", l.Namespace, l.Name)
		switch holder := *l.Spec.HolderIdentity; {
		case holder != "" && !strings.HasPrefix(holder, render.ControlName+"-"):
			return []Finding{failed(ref, remedy, "%q holds the Lease but is not a replica of control, so no replica leads", holder)}
		case s.Facts.Taken.Sub(l.Spec.RenewTime.Time) > staleLease:
			return []Finding{failed(ref, "see the logs of control's pods: kubectl -n "+l.Namespace+" logs deployment/"+render.ControlName,
				"no replica of control has renewed the Lease since %s, so no replica leads", formatTime(l.Spec.RenewTime.Time))}
		}
	}
	return nil
}

var controlObserved = Check{
	Code: "OOOI-CTL-002", Title: "control has observed the current generation of the Infra", Component: componentControl, Run: checkObserved,
	Reads: site.In(site.AtInfra, site.Infras, site.ProxyServers),
	About: "Conditions describe the generation in `status.observedGeneration`. Control updates them within seconds after a change.",
}

func checkObserved(s *Site) []Finding {
	if s.Infra.Status.ObservedGeneration == s.Infra.Generation {
		return nil
	}
	return []Finding{failed(s.Ref(), "see control's log: kubectl -n "+render.SystemNamespace+" logs deployment/"+render.ControlName,
		"the status is for generation %d, but the current generation is %d", s.Infra.Status.ObservedGeneration, s.Infra.Generation)}
}

var daemonsCurrent = problemCheck(Check{
	Code: "OOOI-API-006", Title: "daemons receive updates from the API server",
	About: "A daemon whose watches fail serves its last known state. The evidence contains the error of each watch, such as a missing permission, a " +
		"rejected token, or a failed connection.",
})

var statusesWritten = problemCheck(Check{
	Code: "OOOI-CTL-005", Title: "statuses can be written", Component: componentControl,
	About: "Control and xdsd write the status of Infras and ProxyServers. Conditions are outdated if these writes fail, " +
		"for example because etcd is full, an admission webhook rejects them, or a permission is missing.",
})

var objectsKept = problemCheck(Check{
	Code: "OOOI-API-007", Title: "daemons use no objects that disappeared", Component: componentOther,
	About: "Daemons keep using objects that disappear from the API server unexpectedly: the Infra's objects until teardown, others for 10 minutes.",
})

// servesVersion reports whether a CustomResourceDefinition serves a version.
func servesVersion(crd *unstructured.Unstructured, version string) bool {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	return slices.ContainsFunc(versions, func(v any) bool {
		m, _ := v.(map[string]any)
		return m["name"] == version && m["served"] == true
	})
}

// conditionsOf returns the conditions of an object; nil if status.conditions does not have the usual form.
func conditionsOf(u *unstructured.Unstructured) []status.BasicCondition {
	o, err := status.GetObjectWithConditions(u.Object)
	if err != nil {
		return nil
	}
	return o.Status.Conditions
}

// conditionStatus returns the status of a condition; empty if the object lacks the condition.
func conditionStatus(u *unstructured.Unstructured, kind string) string {
	for _, c := range conditionsOf(u) {
		if c.Type == kind {
			return string(c.Status)
		}
	}
	return ""
}

// conditionTexts returns all conditions of an object as evidence.
func conditionTexts(u *unstructured.Unstructured) []string {
	var list []string
	for _, c := range conditionsOf(u) {
		list = append(list, conditionText(c))
	}
	return list
}

func conditionText(c status.BasicCondition) string {
	return strings.TrimRight(fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message), ": ")
}

// formatTime returns a time for messages.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
