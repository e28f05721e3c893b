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

// infraFacts is what the status of an Infra is judged by.
type infraFacts struct {
	object *v1alpha1.Infra
	// infra is what the object amounts to; nil while that is not known.
	infra *model.Infra
	// problems are those of the object, and of the cluster that it serves.
	problems []model.Problem
	// dhcp, dns and proxy say how the components fare.
	dhcp, dns, proxy component
}

// component is how one part of an Infra fares.
type component struct {
	enabled bool
	// fault says why it does not work; empty when it does.
	fault string
}

func (c component) ready() bool { return c.enabled && c.fault == "" }

// infraStatus sums up what is known of an Infra. The apps address is left as it is.
func infraStatus(f *infraFacts) v1alpha1.InfraStatus {
	status := *f.object.Status.DeepCopy()
	status.ObservedGeneration = f.object.Generation
	status.ComponentStatus = &v1alpha1.ComponentStatus{DHCPReady: f.dhcp.ready(), DNSReady: f.dns.ready(), ProxyReady: f.proxy.ready()}
	for _, c := range []metav1.Condition{f.bound(), f.network(), f.names(), f.apps(), f.appsDomain()} {
		setCondition(&status.Conditions, c, f.object.Generation)
	}
	setCondition(&status.Conditions, f.ready(status.Conditions), f.object.Generation)
	return status
}

// found are the problems with one of the reasons.
func (f *infraFacts) found(reasons ...model.Reason) []model.Problem {
	var list []model.Problem
	for _, p := range f.problems {
		if slices.Contains(reasons, p.Reason) {
			list = append(list, p)
		}
	}
	return list
}

// without is a condition that is true unless there are problems.
func without(kind string, problems []model.Problem, reason, message string) metav1.Condition {
	if len(problems) > 0 {
		return condition(kind, metav1.ConditionFalse, string(problems[0].Reason), "%s", messages(problems))
	}
	return condition(kind, metav1.ConditionTrue, reason, "%s", message)
}

func (f *infraFacts) bound() metav1.Condition {
	problems := f.found(model.ReasonHostedClusterNotFound, model.ReasonHostedClusterAmbiguous, model.ReasonConsentMissing)
	message := ""
	if f.infra != nil && f.infra.Serves != nil {
		message = f.infra.Serves.String()
	}
	return without(v1alpha1.ConditionHostedClusterBound, problems, "Bound", message)
}

func (f *infraFacts) network() metav1.Condition {
	return without(v1alpha1.ConditionNetworkValid,
		f.found(model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict, model.ReasonVLANOverlap, model.ReasonVLANMismatch),
		"Valid", "addresses and ranges are consistent")
}

// names is true when the control plane's names have answers, in both views.
func (f *infraFacts) names() metav1.Condition {
	kind := v1alpha1.ConditionNamesServed
	problems := f.found(model.ReasonProxyDisabled, model.ReasonProxyServiceMissing, model.ReasonNoBaseDomain, model.ReasonInvalidName, model.ReasonNameConflict, model.ReasonNameNotAllowed)
	switch {
	case len(problems) > 0:
		return without(kind, problems, "", "")
	case f.infra == nil || f.infra.Cluster == nil || len(f.infra.Cluster.Hostnames) == 0:
		return condition(kind, metav1.ConditionFalse, "NoNames", "the control plane is unknown, and no names are served")
	case f.dns.enabled && f.dns.fault != "":
		return condition(kind, metav1.ConditionFalse, "DNSNotReady", "%s", f.dns.fault)
	}
	return condition(kind, metav1.ConditionTrue, "Served", "%d names of %s", len(f.infra.Cluster.Hostnames), f.infra.Cluster.Ref)
}

// apps says what the applications' state says.
func (f *infraFacts) apps() metav1.Condition {
	kind, state := v1alpha1.ConditionAppsIngressReady, f.object.Status.AppsIngress
	switch {
	case !f.object.Spec.AppsIngress.IsEnabled():
		return condition(kind, metav1.ConditionFalse, "Disabled", "spec.appsIngress is not enabled")
	case state == nil:
		return condition(kind, metav1.ConditionFalse, string(v1alpha1.AppsIngressPending), "not checked yet")
	case state.Phase == v1alpha1.AppsIngressReady:
		return condition(kind, metav1.ConditionTrue, "Ready", "%s", strings.Join(state.ExternalIPs, ", "))
	}
	return condition(kind, metav1.ConditionFalse, string(cmp.Or(state.Reason, v1alpha1.AppsIngressReason(state.Phase))), "%s", state.Message)
}

func (f *infraFacts) appsDomain() metav1.Condition {
	kind := v1alpha1.ConditionAppsDomainMismatch
	if problems := f.found(model.ReasonAppsDomainMismatch); len(problems) > 0 {
		return condition(kind, metav1.ConditionTrue, string(problems[0].Reason), "%s", messages(problems))
	}
	return condition(kind, metav1.ConditionFalse, "Matches", "")
}

// ready is true when everything that is asked for works.
func (f *infraFacts) ready(conditions []metav1.Condition) metav1.Condition {
	kind := v1alpha1.ConditionReady
	var faults []string
	first := ""
	for _, c := range conditions {
		asked := c.Type != v1alpha1.ConditionReady && c.Type != v1alpha1.ConditionAppsDomainMismatch &&
			(c.Type != v1alpha1.ConditionAppsIngressReady || f.object.Spec.AppsIngress.IsEnabled()) &&
			(c.Type != v1alpha1.ConditionNamesServed || f.dns.enabled || f.proxy.enabled)
		if asked && c.Status != metav1.ConditionTrue {
			first = cmp.Or(first, c.Reason)
			faults = append(faults, fmt.Sprintf("%s: %s", c.Type, c.Message))
		}
	}
	for _, c := range []struct {
		component

		what, reason string
	}{{f.dhcp, "DHCP", "DHCPNotReady"}, {f.dns, "DNS", "DNSNotReady"}, {f.proxy, "proxy", "ProxyNotReady"}} {
		if c.enabled && c.fault != "" {
			first = cmp.Or(first, c.reason)
			faults = append(faults, c.what+": "+c.fault)
		}
	}
	if len(faults) > 0 {
		return condition(kind, metav1.ConditionFalse, first, "%s", strings.Join(faults, "; "))
	}
	return condition(kind, metav1.ConditionTrue, "Ready", "all enabled components were probed and work")
}
