package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// infraFacts are the inputs of infraStatus.
type infraFacts struct {
	object *v1alpha1.Infra
	// infra is the Infra in the model.
	infra *model.Infra
	// proxies are the ProxyServers that refer to the Infra.
	proxies []*model.ProxyServer
	// problems are the model's problems of the Infra and of its hosted cluster.
	problems []model.Problem
	// dhcp, dns and proxy are the states of the components.
	dhcp, dns, proxy component
	// observed are the pods' reports; nil if unknown.
	observed *observation
	// apps is status.appsIngress; nil if appsIngress is not enabled.
	apps *v1alpha1.AppsIngressStatus
}

// component is the state of a component of an Infra.
type component struct {
	enabled bool
	// fault is why the component does not work; empty if it works.
	fault string
}

func (c component) ready() bool { return c.enabled && c.fault == "" }

// infraStatus returns the status of an Infra.
func infraStatus(f *infraFacts) v1alpha1.InfraStatus {
	status := *f.object.Status.DeepCopy()
	status.ObservedGeneration, status.AppsIngress = f.object.Generation, f.apps
	status.ComponentStatus = &v1alpha1.ComponentStatus{DHCPReady: f.dhcp.ready(), DNSReady: f.dns.ready(), ProxyReady: f.proxy.ready()}
	for _, c := range append([]metav1.Condition{f.bound(), f.network(), f.names(), f.records(), f.appsReady(), f.appsDomain()}, f.observations()...) {
		setCondition(&status.Conditions, c, f.object.Generation)
	}
	setCondition(&status.Conditions, f.ready(status.Conditions), f.object.Generation)
	return status
}

// problemsWith returns the problems with one of the reasons.
func (f *infraFacts) problemsWith(reasons ...model.Reason) []model.Problem {
	var list []model.Problem
	for _, p := range f.problems {
		if slices.Contains(reasons, p.Reason) {
			list = append(list, p)
		}
	}
	return list
}

// problemCondition returns a condition that is false if there are problems, otherwise true.
func problemCondition(kind string, problems []model.Problem, reason, message string) metav1.Condition {
	if len(problems) > 0 {
		return condition(kind, metav1.ConditionFalse, string(problems[0].Reason), "%s", messages(problems))
	}
	return condition(kind, metav1.ConditionTrue, reason, "%s", message)
}

func (f *infraFacts) bound() metav1.Condition {
	problems := f.problemsWith(model.ReasonHostedClusterNotFound, model.ReasonHostedClusterAmbiguous, model.ReasonConsentMissing)
	message := ""
	if f.object.Spec.OnlyDHCP() {
		message = "DHCP needs no HostedCluster"
	}
	if f.infra.Serves != nil {
		message = f.infra.Serves.String()
	}
	if f.infra.NotChosen != "" {
		message += ": " + f.infra.NotChosen
	}
	if c := f.infra.Cluster; c != nil && c.ExternalVMs {
		message += ", whose VMs run in another cluster (spec.platform.kubevirt.credentials.infraKubeConfigSecret)"
	}
	return problemCondition(v1alpha1.ConditionHostedClusterBound, problems, "Bound", message)
}

// dhcpFault returns why DHCP cannot serve the VMs of the hosted cluster, or else fault.
func (f *infraFacts) dhcpFault(fault string) string {
	dhcp, c := f.object.Spec.InfraComponents.DHCP, f.infra.Cluster
	if c == nil || !c.ExternalVMs || dhcp.VMSelector != nil || len(dhcp.Hosts) > 0 {
		return fault
	}
	return "the VMs of " + c.String() + " run in another cluster, and DHCP serves VMs of this one: deploy DHCP there, and set " +
		"spec.infraComponents.dhcp.enabled to false here"
}

func (f *infraFacts) network() metav1.Condition {
	return problemCondition(v1alpha1.ConditionNetworkValid,
		f.problemsWith(model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict, model.ReasonVLANOverlap, model.ReasonVLANMismatch),
		"Valid", "addresses and ranges are consistent")
}

// names returns the condition NamesServed, which is true if the control-plane names are known and DNS responds.
func (f *infraFacts) names() metav1.Condition {
	kind := v1alpha1.ConditionNamesServed
	problems := f.problemsWith(model.ReasonProxyDisabled, model.ReasonProxyServiceMissing, model.ReasonNoBaseDomain,
		model.ReasonInvalidName, model.ReasonNameConflict, model.ReasonNameNotAllowed)
	switch {
	case len(problems) > 0:
		return problemCondition(kind, problems, "", "")
	case f.infra.Cluster == nil || len(f.infra.Cluster.Hostnames) == 0:
		return condition(kind, metav1.ConditionFalse, "NoNames", "the control plane is unknown, so no names are served")
	case f.dns.enabled && f.dns.fault != "":
		return condition(kind, metav1.ConditionFalse, "DNSNotReady", "%s", f.dns.fault)
	}
	message := fmt.Sprintf("%d names of %s are served", len(f.infra.Cluster.Hostnames), f.infra.Cluster.Ref)
	if overlaps := f.problemsWith(model.ReasonDomainOverlap); len(overlaps) > 0 {
		message += "; " + messages(overlaps)
	}
	return condition(kind, metav1.ConditionTrue, "Served", "%s", message)
}

// records returns the condition RecordsServed, which is false if a record or an additional name is not served.
func (f *infraFacts) records() metav1.Condition {
	return problemCondition(v1alpha1.ConditionRecordsServed, f.problemsWith(model.ReasonInvalidRecord, model.ReasonRecordConflict), "Served",
		"no record has a name of another object")
}

// appsReady returns the condition AppsIngressReady, which corresponds to status.appsIngress.
func (f *infraFacts) appsReady() metav1.Condition {
	kind, state := v1alpha1.ConditionAppsIngressReady, f.apps
	switch {
	case state == nil:
		return condition(kind, metav1.ConditionFalse, reasonDisabled, "spec.appsIngress is not enabled")
	case state.Phase == v1alpha1.AppsIngressReady:
		message := strings.Join(state.ExternalIPs, ", ")
		if f.object.Spec.AppsIngress.Source == v1alpha1.AppsIngressSourceMirroredService {
			message += "; " + v1alpha1.MirroredServiceNote
		}
		if state.Message != "" {
			message += "; " + state.Message
		}
		return condition(kind, metav1.ConditionTrue, "Ready", "%s", message)
	}
	return condition(kind, metav1.ConditionFalse, string(cmp.Or(state.Reason, v1alpha1.AppsIngressReason(state.Phase))), "%s", state.Message)
}

func (f *infraFacts) appsDomain() metav1.Condition {
	kind := v1alpha1.ConditionAppsDomainMismatch
	if problems := f.problemsWith(model.ReasonAppsDomainMismatch); len(problems) > 0 {
		return condition(kind, metav1.ConditionTrue, string(problems[0].Reason), "%s", messages(problems))
	}
	return condition(kind, metav1.ConditionFalse, "Matches", "")
}

// observations returns the conditions of the components and of their dependencies.
func (f *infraFacts) observations() []metav1.Condition {
	o, ref := f.observed, f.infra.Ref
	ifEnabled := func(enabled bool, otherwise string, c metav1.Condition) metav1.Condition {
		if !enabled {
			return condition(c.Type, metav1.ConditionTrue, reasonDisabled, "%s", otherwise)
		}
		return c
	}
	const dhcp, dns, proxy, healthy = "DHCP is not enabled", "DNS is not enabled", "the proxy is not enabled", "every replica responds"
	return []metav1.Condition{
		ifEnabled(f.dhcp.enabled, dhcp, o.condition(v1alpha1.ConditionDHCPReady, ref, true, "DHCPNotReady", f.dhcp.fault, healthy)),
		ifEnabled(f.dns.enabled, dns, o.condition(v1alpha1.ConditionDNSReady, ref, true, "DNSNotReady", f.dns.fault, healthy)),
		ifEnabled(f.proxy.enabled, proxy, o.condition(v1alpha1.ConditionProxyReady, ref, true, "ProxyNotReady", f.proxy.fault, healthy)),
		ifEnabled(f.dhcp.enabled || f.dns.enabled || f.proxy.enabled, "no component is enabled", o.vlanReady(ref)),
		ifEnabled(f.dns.enabled, dns, o.condition(v1alpha1.ConditionUpstreamReady, ref, o.reports(v1alpha1.ComponentDNS), "", "", "the upstream resolvers answer")),
		ifEnabled(f.proxy.enabled, proxy, o.backendsReady(ref)),
	}
}

// ready returns the condition Ready, which is true if all enabled components work.
func (f *infraFacts) ready(conditions []metav1.Condition) metav1.Condition {
	var faults []string
	first := ""
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue && f.requires(&c) {
			first = cmp.Or(first, c.Reason)
			faults = append(faults, fmt.Sprintf("%s: %s", c.Type, c.Message))
		}
	}
	if len(faults) > 0 {
		return condition(v1alpha1.ConditionReady, metav1.ConditionFalse, first, "%s", strings.Join(faults, "; "))
	}
	return condition(v1alpha1.ConditionReady, metav1.ConditionTrue, reasonReady, "all enabled components work")
}

// requires reports whether the Infra is not ready while a condition is not true.
func (f *infraFacts) requires(c *metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionReady, v1alpha1.ConditionRecordsServed, v1alpha1.ConditionAppsDomainMismatch, v1alpha1.ConditionUpstreamReady,
		v1alpha1.ConditionBackendsReady:
		return false
	case v1alpha1.ConditionAppsIngressReady:
		return f.apps != nil
	case v1alpha1.ConditionNamesServed:
		return f.dns.enabled || f.proxy.enabled
	case v1alpha1.ConditionVLANReady:
		return c.Status == metav1.ConditionFalse
	}
	return true
}
