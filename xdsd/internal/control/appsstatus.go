package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// appsFacts are the inputs of appsStatus.
type appsFacts struct {
	object *v1alpha1.Infra
	// cluster is the hosted cluster, or nil if the Infra is not bound to one.
	cluster *model.Cluster
	// problems are the model's problems of the Infra and of its hosted cluster.
	problems []model.Problem
	// outcome is the result of the reconciliation in the hosted cluster.
	outcome outcome
	// synced is when the source of the addresses was last read; zero if it is not read.
	synced time.Time
	// waitingSince is when waiting for the first address began.
	waitingSince, now time.Time
}

// outcome is the result of reconciling the objects in a hosted cluster.
type outcome struct {
	// infra is the Infra of the objects.
	infra types.NamespacedName
	// fault is why the reconciliation failed, or why the Service lacks a usable address; nil for no fault.
	fault *guest.Fault
	// warning is a fault that leaves the address usable; empty for none.
	warning string
}

// transientReasons may resolve by themselves while a cluster starts. They are Pending until the address deadline; all
// others are Degraded immediately.
var transientReasons = []v1alpha1.AppsIngressReason{
	v1alpha1.AppsIngressKubeconfigMissing, v1alpha1.AppsIngressHostedClusterUnreachable, v1alpha1.AppsIngressMetalLBMissing,
	v1alpha1.AppsIngressPoolMissing, v1alpha1.AppsIngressAddressNotAssigned, v1alpha1.AppsIngressAdvertisementMissing,
	v1alpha1.AppsIngressNotAnnounced,
}

// noAddressReasons imply that the Service lacks an address.
var noAddressReasons = []v1alpha1.AppsIngressReason{
	v1alpha1.AppsIngressMetalLBMissing, v1alpha1.AppsIngressPoolMissing, v1alpha1.AppsIngressPoolExhausted, v1alpha1.AppsIngressAddressNotAssigned,
}

// reasonPriority orders reasons by priority. Only the first fault is reported, so that causes precede their
// effects.
var reasonPriority = []v1alpha1.AppsIngressReason{
	v1alpha1.AppsIngressKubeconfigMissing, v1alpha1.AppsIngressKubeconfigRejected, v1alpha1.AppsIngressHostedClusterUnreachable,
	v1alpha1.AppsIngressHostedClusterForbidden, v1alpha1.AppsIngressInstallFailed, v1alpha1.AppsIngressServiceForeign,
	v1alpha1.AppsIngressServiceRejected, v1alpha1.AppsIngressControllerConflict, v1alpha1.AppsIngressAddressNotAllowed,
	v1alpha1.AppsIngressAddressWithdrawn, v1alpha1.AppsIngressMetalLBMissing, v1alpha1.AppsIngressPoolMissing,
	v1alpha1.AppsIngressPoolExhausted, v1alpha1.AppsIngressAddressNotAssigned, v1alpha1.AppsIngressAdvertisementMissing,
	v1alpha1.AppsIngressNotAnnounced,
}

// appsStatus returns the status of an Infra that has appsIngress enabled.
func appsStatus(f *appsFacts) *v1alpha1.AppsIngressStatus {
	before := cmp.Or(f.object.Status.AppsIngress, &v1alpha1.AppsIngressStatus{})
	status := &v1alpha1.AppsIngressStatus{LastSyncTime: before.LastSyncTime}
	if service := f.service(); service.Name != "" {
		status.ServiceNamespace, status.ServiceName = service.Namespace, service.Name
	}
	if f.cluster != nil && f.cluster.Apps != nil {
		for _, a := range f.cluster.Apps.Addresses {
			status.ExternalIPs = append(status.ExternalIPs, a.String())
		}
	}
	if len(status.ExternalIPs) > 0 {
		status.ExternalIP = status.ExternalIPs[0]
	}
	fault := f.fault()
	switch {
	case fault == nil:
		status.Phase = v1alpha1.AppsIngressReady
		if f.source() == v1alpha1.AppsIngressSourceHostedService {
			status.Message = f.outcome.warning
		}
		if by := f.cluster.Apps.Infra; by != nil && (by.Namespace != f.object.Namespace || by.Name != f.object.Name) {
			status.Message = fmt.Sprintf("%s configures the apps ingress of %s: appsIngress of this Infra is not used", by, f.cluster.Ref)
		}
	case slices.Contains(transientReasons, fault.Reason) && before.Phase != v1alpha1.AppsIngressDegraded && len(status.ExternalIPs) == 0:
		status.Phase = v1alpha1.AppsIngressPending
		deadline, _ := time.ParseDuration(string(cmp.Or(f.object.Spec.AppsIngress.AddressDeadline, v1alpha1.DefaultAddressDeadline))) // valid by the CRD
		if f.now.Sub(f.waitingSince) >= deadline {
			status.Phase = v1alpha1.AppsIngressDegraded
		}
	default:
		status.Phase = v1alpha1.AppsIngressDegraded
	}
	if fault != nil {
		status.Reason, status.Message = fault.Reason, fault.Message
	}
	f.sync(before, status)
	return status
}

// waitingSince returns when the condition AppsIngressReady of an Infra became false while appsIngress was enabled.
func waitingSince(object *v1alpha1.Infra, now time.Time) time.Time {
	c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionAppsIngressReady)
	if c == nil || c.Status == metav1.ConditionTrue || c.Reason == reasonDisabled {
		return now
	}
	return c.LastTransitionTime.Time
}

// sync sets lastSyncTime if another field has changed, or if it is older than syncInterval.
func (f *appsFacts) sync(before, status *v1alpha1.AppsIngressStatus) {
	if f.synced.IsZero() || before.LastSyncTime != nil && !f.synced.After(before.LastSyncTime.Time) {
		return
	}
	same := *before
	same.LastSyncTime = status.LastSyncTime
	if before.LastSyncTime == nil || f.synced.Sub(before.LastSyncTime.Time) >= syncInterval || !equality.Semantic.DeepEqual(&same, status) {
		now := metav1.NewTime(f.synced.Truncate(time.Second)) // the API has a resolution of seconds
		status.LastSyncTime = &now
	}
}

func (f *appsFacts) source() v1alpha1.AppsIngressSource {
	return cmp.Or(f.object.Spec.AppsIngress.Source, v1alpha1.AppsIngressSourceHostedService)
}

// service returns the Service that the addresses come from; zero unless the source is HostedService.
func (f *appsFacts) service() types.NamespacedName {
	if f.cluster == nil || f.source() != v1alpha1.AppsIngressSourceHostedService {
		return types.NamespacedName{}
	}
	return f.object.Spec.AppsIngress.ServiceKey(f.cluster.Name)
}

// fault returns the fault to report, or nil if the addresses are current.
func (f *appsFacts) fault() *guest.Fault {
	if f.cluster == nil {
		return &guest.Fault{Reason: v1alpha1.AppsIngressKubeconfigMissing, Message: cmp.Or(f.unboundMessage(), "the Infra lacks a hosted cluster")}
	}
	if f.cluster.Apps == nil {
		return &guest.Fault{Reason: v1alpha1.AppsIngressAddressNotAssigned,
			Message: f.cluster.String() + " lacks an apps domain; set spec.dns.baseDomain of the HostedCluster, or spec.appsIngress.baseDomain of the Infra"}
	}
	// Of two faults with the same reason, the outcome's comes first, because its message is more specific.
	var faults []*guest.Fault
	hosted := f.source() == v1alpha1.AppsIngressSourceHostedService
	assigned := f.cluster.Apps.Source == model.AppsHosted // an address may have been assigned since the outcome was recorded
	if fault := f.outcome.fault; hosted && fault != nil && (!assigned || !slices.Contains(noAddressReasons, fault.Reason)) {
		faults = append(faults, fault)
	}
	for _, p := range f.problems {
		if reason := v1alpha1.AppsIngressReason(p.Reason); slices.Contains(reasonPriority, reason) {
			faults = append(faults, &guest.Fault{Reason: reason, Message: p.Message})
		}
	}
	if len(faults) == 0 {
		if len(f.cluster.Apps.Addresses) == 0 || hosted && !f.cluster.Apps.Followed {
			return &guest.Fault{Reason: v1alpha1.AppsIngressAddressNotAssigned, Message: "the apps Service has not been checked yet"}
		}
		return nil
	}
	slices.SortStableFunc(faults, func(a, b *guest.Fault) int {
		return slices.Index(reasonPriority, a.Reason) - slices.Index(reasonPriority, b.Reason)
	})
	first := faults[0]
	if first.Reason == v1alpha1.AppsIngressAddressWithdrawn {
		for _, cause := range faults[1:] {
			if slices.Contains(noAddressReasons, cause.Reason) {
				return &guest.Fault{Reason: first.Reason, Message: first.Message + "; " + cause.Message}
			}
		}
	}
	return first
}

// unboundMessage returns why the Infra lacks a hosted cluster; empty if unknown.
func (f *appsFacts) unboundMessage() string {
	var list []string
	for _, p := range f.problems {
		if p.Reason == model.ReasonHostedClusterNotFound || p.Reason == model.ReasonHostedClusterAmbiguous || p.Reason == model.ReasonConsentMissing {
			list = append(list, p.Message)
		}
	}
	return strings.Join(list, "; ")
}
