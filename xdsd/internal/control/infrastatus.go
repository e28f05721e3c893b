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
	// proxies are the names of the ProxyServers that refer to the Infra.
	proxies []string
	// problems are the model's problems of the Infra and of its hosted cluster.
	problems []model.Problem
	// dhcp, dns and proxy are the states of the components.
	dhcp, dns, proxy component
	// observed is what the pods report; nil if unknown.
	observed *observation
}

// component is the state of a component of an Infra.
type component struct {
	enabled bool
	// fault is why the component does not work; empty if it works.
	fault string
}

func (c component) ready() bool { return c.enabled && c.fault == "" }

// infraStatus returns the status of an Infra. It leaves appsIngress unchanged.
func infraStatus(f *infraFacts) v1alpha1.InfraStatus {
	status := *f.object.Status.DeepCopy()
	status.ObservedGeneration = f.object.Generation
	status.ComponentStatus = &v1alpha1.ComponentStatus{DHCPReady: f.dhcp.ready(), DNSReady: f.dns.ready(), ProxyReady: f.proxy.ready()}
	all := []metav1.Condition{f.bound(), f.network(), f.names(), f.records(), f.apps(), f.appsDomain()}
	for _, c := range slices.Concat(all, f.components(), f.observations()) {
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
	if f.infra.Serves != nil {
		message = f.infra.Serves.String()
	}
	if f.infra.NotChosen != "" {
		message += ": " + f.infra.NotChosen
	}
	return problemCondition(v1alpha1.ConditionHostedClusterBound, problems, "Bound", message)
}

func (f *infraFacts) network() metav1.Condition {
	return problemCondition(v1alpha1.ConditionNetworkValid,
		f.problemsWith(model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict, model.ReasonVLANOverlap, model.ReasonVLANMismatch),
		"Valid", "addresses and ranges are consistent")
}

// names returns the condition NamesServed, which is true if the names of the control plane are known and DNS
// answers.
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

// records returns the condition RecordsServed, which is false if a record or a further name is not served.
func (f *infraFacts) records() metav1.Condition {
	return problemCondition(v1alpha1.ConditionRecordsServed, f.problemsWith(model.ReasonInvalidRecord, model.ReasonRecordConflict), "Served",
		"no record has a name of another object")
}

// apps returns the condition AppsIngressReady, which corresponds to status.appsIngress.
func (f *infraFacts) apps() metav1.Condition {
	kind, state := v1alpha1.ConditionAppsIngressReady, f.object.Status.AppsIngress
	switch {
	case !f.object.Spec.AppsIngress.IsEnabled():
		return condition(kind, metav1.ConditionFalse, "Disabled", "spec.appsIngress is not enabled")
	case state == nil:
		return condition(kind, metav1.ConditionFalse, string(v1alpha1.AppsIngressPending), "the apps ingress has not been checked yet")
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

// components returns the conditions of the components, which are false if a probe or a problem is.
func (f *infraFacts) components() []metav1.Condition {
	var list []metav1.Condition
	for _, c := range []struct {
		component

		kind, name, reason string
	}{
		{f.dhcp, v1alpha1.ConditionDHCPReady, "DHCP", "DHCPNotReady"},
		{f.dns, v1alpha1.ConditionDNSReady, "DNS", "DNSNotReady"},
		{f.proxy, v1alpha1.ConditionProxyReady, "the proxy", "ProxyNotReady"},
	} {
		if c.enabled {
			list = append(list, f.observed.condition(c.kind, f.infra.Ref, true, c.reason, c.fault, "every replica answers"))
		} else {
			list = append(list, disabled(c.kind, c.name+" is not enabled"))
		}
	}
	return list
}

// observations returns the conditions that only problems make false.
func (f *infraFacts) observations() []metav1.Condition {
	vlan, upstream, backends := f.observed.vlanReady(f.infra.Ref), disabled(v1alpha1.ConditionUpstreamReady, "DNS is not enabled"),
		disabled(v1alpha1.ConditionBackendsReady, "the proxy is not enabled")
	if !f.dhcp.enabled && !f.dns.enabled && !f.proxy.enabled {
		vlan = disabled(v1alpha1.ConditionVLANReady, "no component is enabled")
	}
	if f.dns.enabled {
		upstream = f.observed.condition(v1alpha1.ConditionUpstreamReady, f.infra.Ref, f.observed != nil && f.observed.components[v1alpha1.ComponentDNS],
			"", "", "the upstream resolvers answer")
	}
	if f.proxy.enabled {
		backends = f.observed.backendsReady(f.infra.Ref)
	}
	return []metav1.Condition{vlan, upstream, backends}
}

// ready returns the condition Ready, which is true if all enabled components work.
func (f *infraFacts) ready(conditions []metav1.Condition) metav1.Condition {
	kind := v1alpha1.ConditionReady
	var faults []string
	first := ""
	for _, c := range conditions {
		required := c.Status != metav1.ConditionTrue
		switch c.Type {
		case v1alpha1.ConditionReady, v1alpha1.ConditionRecordsServed, v1alpha1.ConditionAppsDomainMismatch, v1alpha1.ConditionUpstreamReady,
			v1alpha1.ConditionBackendsReady, v1alpha1.ConditionDHCPReady, v1alpha1.ConditionDNSReady, v1alpha1.ConditionProxyReady: // the last three follow
			required = false
		case v1alpha1.ConditionAppsIngressReady:
			required = required && f.object.Spec.AppsIngress.IsEnabled()
		case v1alpha1.ConditionNamesServed:
			required = required && (f.dns.enabled || f.proxy.enabled)
		case v1alpha1.ConditionVLANReady:
			required = c.Status == metav1.ConditionFalse
		}
		if required {
			first = cmp.Or(first, c.Reason)
			faults = append(faults, fmt.Sprintf("%s: %s", c.Type, c.Message))
		}
	}
	names := []string{"DHCP", "DNS", "proxy"}
	for i, c := range f.components() {
		if c.Status != metav1.ConditionTrue {
			first = cmp.Or(first, c.Reason)
			faults = append(faults, names[i]+": "+c.Message)
		}
	}
	if len(faults) > 0 {
		return condition(kind, metav1.ConditionFalse, first, "%s", strings.Join(faults, "; "))
	}
	return condition(kind, metav1.ConditionTrue, reasonReady, "all enabled components work")
}
