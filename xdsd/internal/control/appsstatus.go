package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// appsFacts is what the state of an Infra's applications is judged by.
type appsFacts struct {
	object *v1alpha1.Infra
	// cluster is the hosted cluster; nil while there is none.
	cluster *model.Cluster
	// problems are those of the Infra.
	problems []model.Problem
	// outcome is what came of the last look into the hosted cluster.
	outcome outcome
	// synced is when what the addresses come from was last known to be current.
	synced time.Time
	// since is when waiting for the first address began.
	since time.Time
	now   time.Time
}

// outcome is what came of making a hosted cluster as it is to be.
type outcome struct {
	// fault is what went wrong; nil for nothing.
	fault *guest.Fault
	// created is when the Service was made; zero where it is not known.
	created time.Time
}

// syncEvery is how old lastSyncTime may become while all is well: a newer one by itself is
// no reason to write.
const syncEvery = 5 * time.Minute

// waiting are the reasons that time may mend while a cluster comes up.
var waiting = []v1alpha1.AppsIngressReason{
	v1alpha1.AppsIngressKubeconfigMissing, v1alpha1.AppsIngressHostedClusterUnreachable, v1alpha1.AppsIngressMetalLBMissing,
	v1alpha1.AppsIngressPoolMissing, v1alpha1.AppsIngressAddressNotAssigned, v1alpha1.AppsIngressNotAnnounced,
}

// unassigned are the reasons for which there is no address.
var unassigned = []v1alpha1.AppsIngressReason{
	v1alpha1.AppsIngressMetalLBMissing, v1alpha1.AppsIngressPoolMissing, v1alpha1.AppsIngressPoolExhausted, v1alpha1.AppsIngressAddressNotAssigned,
}

// order is that in which several reasons are told: what explains others comes first.
var order = []v1alpha1.AppsIngressReason{
	v1alpha1.AppsIngressKubeconfigMissing, v1alpha1.AppsIngressKubeconfigRejected, v1alpha1.AppsIngressHostedClusterUnreachable,
	v1alpha1.AppsIngressHostedClusterForbidden, v1alpha1.AppsIngressInstallFailed, v1alpha1.AppsIngressServiceForeign,
	v1alpha1.AppsIngressServiceRejected, v1alpha1.AppsIngressControllerConflict, v1alpha1.AppsIngressAddressNotAllowed,
	v1alpha1.AppsIngressAddressWithdrawn, v1alpha1.AppsIngressMetalLBMissing, v1alpha1.AppsIngressPoolMissing,
	v1alpha1.AppsIngressPoolExhausted, v1alpha1.AppsIngressAddressNotAssigned, v1alpha1.AppsIngressNotAnnounced,
}

// appsStatus is the state of the applications of an Infra that has appsIngress enabled. The
// second value is when time alone changes it; zero for never.
func appsStatus(f *appsFacts) (status *v1alpha1.AppsIngressStatus, next time.Time) {
	before := f.object.Status.AppsIngress
	if before == nil {
		before = &v1alpha1.AppsIngressStatus{}
	}
	status = &v1alpha1.AppsIngressStatus{LastSyncTime: before.LastSyncTime}
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
	case slices.Contains(waiting, fault.Reason) && before.Phase != v1alpha1.AppsIngressDegraded && len(status.ExternalIPs) == 0:
		status.Phase = v1alpha1.AppsIngressPending
		if end := f.since.Add(f.deadline()); f.now.Before(end) {
			next = end
		} else {
			status.Phase = v1alpha1.AppsIngressDegraded
		}
	default:
		status.Phase = v1alpha1.AppsIngressDegraded
	}
	if fault != nil {
		status.Reason, status.Message = fault.Reason, fault.Message
	}
	f.sync(before, status)
	return status, next
}

// sync moves lastSyncTime where something else has changed, or where it has become old.
func (f *appsFacts) sync(before, status *v1alpha1.AppsIngressStatus) {
	if f.synced.IsZero() || before.LastSyncTime != nil && !f.synced.After(before.LastSyncTime.Time) {
		return
	}
	same := *before
	same.LastSyncTime = status.LastSyncTime
	if before.LastSyncTime == nil || f.synced.Sub(before.LastSyncTime.Time) >= syncEvery || !equalStatus(&same, status) {
		now := metav1.NewTime(f.synced.Truncate(time.Second)) // as it is written
		status.LastSyncTime = &now
	}
}

func equalStatus(a, b *v1alpha1.AppsIngressStatus) bool {
	return a.Phase == b.Phase && a.ExternalIP == b.ExternalIP && slices.Equal(a.ExternalIPs, b.ExternalIPs) &&
		a.ServiceName == b.ServiceName && a.ServiceNamespace == b.ServiceNamespace && a.Reason == b.Reason &&
		a.Message == b.Message && a.LastSyncTime.Equal(b.LastSyncTime)
}

func (f *appsFacts) source() v1alpha1.AppsIngressSource {
	return cmp.Or(f.object.Spec.AppsIngress.Source, v1alpha1.AppsIngressSourceHostedService)
}

// service is where the address comes from.
func (f *appsFacts) service() types.NamespacedName {
	if f.cluster == nil || f.source() != v1alpha1.AppsIngressSourceHostedService {
		return types.NamespacedName{}
	}
	return f.object.Spec.AppsIngress.ServiceKey(f.cluster.Name)
}

func (f *appsFacts) deadline() time.Duration {
	text := cmp.Or(f.object.Spec.AppsIngress.AddressDeadline, v1alpha1.DefaultAddressDeadline)
	d, err := time.ParseDuration(string(text))
	if err != nil { // which the CRD refuses
		return 0
	}
	return d
}

// fault is the one to be told; nil when the addresses are as they should be.
func (f *appsFacts) fault() *guest.Fault {
	if f.cluster == nil {
		return &guest.Fault{Reason: v1alpha1.AppsIngressKubeconfigMissing, Message: cmp.Or(f.unbound(), "the Infra has no hosted cluster")}
	}
	if f.cluster.Apps == nil {
		return &guest.Fault{Reason: v1alpha1.AppsIngressAddressNotAssigned, Message: f.cluster.String() + " has no apps domain: set spec.dns.baseDomain of the HostedCluster"}
	}
	// Of one rank, what the look into the cluster found comes first: it says more.
	var faults []*guest.Fault
	hosted := f.source() == v1alpha1.AppsIngressSourceHostedService
	assigned := f.cluster.Apps.Source == model.AppsHosted // since the last look, it may be
	if fault := f.outcome.fault; hosted && fault != nil && (!assigned || !slices.Contains(unassigned, fault.Reason)) {
		faults = append(faults, fault)
	}
	for _, p := range f.problems {
		if reason := v1alpha1.AppsIngressReason(p.Reason); slices.Contains(order, reason) {
			faults = append(faults, &guest.Fault{Reason: reason, Message: p.Message})
		}
	}
	if len(faults) == 0 {
		if len(f.cluster.Apps.Addresses) == 0 || hosted && !f.cluster.Apps.Followed {
			return &guest.Fault{Reason: v1alpha1.AppsIngressAddressNotAssigned, Message: "the Service has not been checked yet"}
		}
		return nil
	}
	slices.SortStableFunc(faults, func(a, b *guest.Fault) int {
		return slices.Index(order, a.Reason) - slices.Index(order, b.Reason)
	})
	return faults[0]
}

// unbound says why there is no cluster.
func (f *appsFacts) unbound() string {
	var list []string
	for _, p := range f.problems {
		if p.Reason == model.ReasonHostedClusterNotFound || p.Reason == model.ReasonHostedClusterAmbiguous || p.Reason == model.ReasonConsentMissing {
			list = append(list, p.Message)
		}
	}
	return strings.Join(list, "; ")
}

// String is for logs.
func (o outcome) String() string {
	if o.fault == nil {
		return "as wanted"
	}
	return fmt.Sprintf("%s: %s", o.fault.Reason, o.fault.Message)
}
