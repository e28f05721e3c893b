package control

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

func TestAppsStatus(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	followed := func(addresses ...string) *model.Cluster {
		c := &model.Cluster{Ref: model.Ref{Kind: "HostedCluster", Namespace: "clusters", Name: "demo"}, Apps: &model.Apps{Followed: true}}
		for _, a := range addresses {
			c.Apps.Addresses, c.Apps.Source = append(c.Apps.Addresses, netip.MustParseAddr(a)), model.AppsHosted
		}
		return c
	}
	unreachable := func(addresses ...string) *model.Cluster {
		c := followed(addresses...)
		c.Apps.Followed = false
		return c
	}
	ofOther := func(addresses ...string) *model.Cluster {
		c := followed(addresses...)
		c.Apps.Infra = &model.Ref{Kind: "Infra", Namespace: "clusters", Name: "first"}
		return c
	}
	fromStatus := func(addresses ...string) *model.Cluster {
		c := followed(addresses...)
		c.Apps.Source = model.AppsStatus
		return c
	}
	problem := func(reason v1alpha1.AppsIngressReason, message string) []model.Problem {
		return []model.Problem{{Reason: model.Reason(reason), Message: message}}
	}
	faulty := func(reason v1alpha1.AppsIngressReason, message string) outcome {
		return outcome{fault: &guest.Fault{Reason: reason, Message: message}}
	}
	type state = v1alpha1.AppsIngressStatus
	for _, tc := range []struct {
		name   string
		apps   v1alpha1.AppsIngress
		facts  appsFacts
		before *state
		want   state
	}{
		{name: "no hosted cluster", facts: appsFacts{waitingSince: now, problems: []model.Problem{{Reason: model.ReasonHostedClusterNotFound, Message: "it does not exist"}}},
			want: state{Phase: "Pending", Reason: "KubeconfigMissing", Message: "it does not exist"}},
		{name: "hosted cluster and address deleted", facts: appsFacts{waitingSince: now}, before: &state{Phase: "Ready", ExternalIPs: []string{"192.0.2.1"}},
			want: state{Phase: "Pending", Reason: "KubeconfigMissing", Message: "the Infra has no hosted cluster"}},
		{name: "not checked yet", facts: appsFacts{cluster: followed(), waitingSince: now},
			want: state{Phase: "Pending", Reason: "AddressNotAssigned", Message: "the apps Service has not been checked yet"}},
		{name: "address in use", facts: appsFacts{cluster: followed("192.0.2.1", "2001:db8::1")},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1", "2001:db8::1"}}},
		{name: "waiting for an address", facts: appsFacts{cluster: followed(), waitingSince: now.Add(-time.Minute), outcome: faulty("PoolMissing", "make one")},
			want: state{Phase: "Pending", Reason: "PoolMissing", Message: "make one"}},
		{name: "deadline exceeded", facts: appsFacts{cluster: followed(), waitingSince: now.Add(-5 * time.Minute), outcome: faulty("PoolMissing", "make one")},
			want: state{Phase: "Degraded", Reason: "PoolMissing", Message: "make one"}},
		{name: "deadline of the Infra exceeded", apps: v1alpha1.AppsIngress{AddressDeadline: "30s"}, facts: appsFacts{cluster: followed(), waitingSince: now.Add(-time.Minute), outcome: faulty("MetalLBMissing", "none")},
			want: state{Phase: "Degraded", Reason: "MetalLBMissing", Message: "none"}},
		{name: "degraded before the deadline", facts: appsFacts{cluster: followed(), waitingSince: now, outcome: faulty("PoolMissing", "make one")}, before: &state{Phase: "Degraded"},
			want: state{Phase: "Degraded", Reason: "PoolMissing", Message: "make one"}},
		{name: "a fault that is never pending", facts: appsFacts{cluster: followed(), waitingSince: now, outcome: faulty("PoolExhausted", "enlarge it")},
			want: state{Phase: "Degraded", Reason: "PoolExhausted", Message: "enlarge it"}},
		{name: "assigned since the outcome", facts: appsFacts{cluster: followed("192.0.2.1"), outcome: faulty("PoolExhausted", "enlarge it")},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}}},
		{name: "assigned and not announced", facts: appsFacts{cluster: followed("192.0.2.1"), outcome: faulty("NotAnnounced", "no speaker")},
			want: state{Phase: "Degraded", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}, Reason: "NotAnnounced", Message: "no speaker"}},
		{name: "in use, with a warning", facts: appsFacts{cluster: followed("192.0.2.1"), outcome: outcome{warning: "no such L2Advertisement"}},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}, Message: "no such L2Advertisement"}},
		{name: "warning of another source", apps: v1alpha1.AppsIngress{Source: "Static"}, facts: appsFacts{cluster: followed("192.0.2.1"), outcome: outcome{warning: "no such L2Advertisement"}},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}}},
		{name: "configured by another Infra of the hosted cluster", facts: appsFacts{cluster: ofOther("192.0.2.1")},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}, Message: "Infra clusters/first configures the apps ingress of HostedCluster clusters/demo: appsIngress of this Infra is not used"}},
		{name: "withdrawn", facts: appsFacts{cluster: fromStatus("192.0.2.1"), problems: problem("AddressWithdrawn", "gone"), outcome: faulty("PoolExhausted", "full")},
			want: state{Phase: "Degraded", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}, Reason: "AddressWithdrawn", Message: "gone; full"}},
		{name: "unreachable, with an earlier address", facts: appsFacts{cluster: unreachable("192.0.2.1"), problems: problem("HostedClusterUnreachable", "no route")},
			want: state{Phase: "Degraded", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}, Reason: "HostedClusterUnreachable", Message: "no route"}},
		{name: "a cause precedes its effect", facts: appsFacts{cluster: unreachable(), waitingSince: now, problems: append(problem("AddressNotAssigned", "none"), problem("KubeconfigRejected", "exec")...)},
			want: state{Phase: "Degraded", Reason: "KubeconfigRejected", Message: "exec"}},
		{name: "of two faults with one reason, that of the outcome", facts: appsFacts{cluster: followed(), waitingSince: now, problems: problem("AddressNotAssigned", "none"), outcome: faulty("AddressNotAssigned", "does MetalLB run?")},
			want: state{Phase: "Pending", Reason: "AddressNotAssigned", Message: "does MetalLB run?"}},
		{name: "unrelated problems", facts: appsFacts{cluster: followed("192.0.2.1"), problems: []model.Problem{{Reason: model.ReasonInvalidRange, Message: "DHCP"}}},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}}},
		{name: "static source, with an unreachable hosted cluster", apps: v1alpha1.AppsIngress{Source: v1alpha1.AppsIngressSourceStatic}, facts: appsFacts{cluster: unreachable("192.0.2.1")},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.apps.Enabled = true
			tc.facts.object, tc.facts.now = &v1alpha1.Infra{}, now
			tc.facts.object.Spec.AppsIngress, tc.facts.object.Status.AppsIngress = &tc.apps, tc.before
			got := appsStatus(&tc.facts)
			got.ServiceName, got.ServiceNamespace = "", ""
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestLastSyncTimeIsWrittenAtIntervals checks that a newer lastSyncTime alone does not cause a write of the Infra
// before syncInterval.
func TestLastSyncTimeIsWrittenAtIntervals(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	infra := &v1alpha1.Infra{}
	infra.Spec.AppsIngress = &v1alpha1.AppsIngress{Enabled: true}
	c := &model.Cluster{Apps: &model.Apps{Followed: true, Source: model.AppsHosted, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}
	sync := func(synced time.Time, fault *guest.Fault) *metav1.Time {
		infra.Status.AppsIngress = appsStatus(&appsFacts{object: infra, cluster: c, synced: synced, now: synced, outcome: outcome{fault: fault}})
		return infra.Status.AppsIngress.LastSyncTime
	}
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: start.Add(d)} }
	for _, tc := range []struct {
		name   string
		synced time.Duration
		fault  *guest.Fault
		want   *metav1.Time
	}{
		{"the first time", 0, nil, at(0)},
		{"a moment later", time.Minute, nil, at(0)},
		{"with another change", 2 * time.Minute, &guest.Fault{Reason: "NotAnnounced"}, at(2 * time.Minute)},
		{"after the interval", 8 * time.Minute, &guest.Fault{Reason: "NotAnnounced"}, at(8 * time.Minute)},
	} {
		if got := sync(start.Add(tc.synced), tc.fault); !got.Equal(tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	if got := sync(time.Time{}, nil); !got.Equal(at(8 * time.Minute)) {
		t.Errorf("without a read: %v", got)
	}
}
