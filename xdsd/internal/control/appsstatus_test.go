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
	lost := func(addresses ...string) *model.Cluster {
		c := followed(addresses...)
		c.Apps.Followed = false
		return c
	}
	kept := func(addresses ...string) *model.Cluster {
		c := followed(addresses...)
		c.Apps.Source = model.AppsStatus
		return c
	}
	problem := func(reason v1alpha1.AppsIngressReason, message string) []model.Problem {
		return []model.Problem{{Reason: model.Reason(reason), Message: message}}
	}
	found := func(reason v1alpha1.AppsIngressReason, message string) outcome {
		return outcome{fault: &guest.Fault{Reason: reason, Message: message}}
	}
	type state = v1alpha1.AppsIngressStatus
	for _, tc := range []struct {
		name   string
		apps   v1alpha1.AppsIngress
		facts  appsFacts
		before *state
		want   state
		next   time.Duration // from now
	}{
		{name: "no hosted cluster", facts: appsFacts{since: now, problems: []model.Problem{{Reason: model.ReasonHostedClusterNotFound, Message: "it does not exist"}}},
			want: state{Phase: "Pending", Reason: "KubeconfigMissing", Message: "it does not exist"}, next: 5 * time.Minute},
		{name: "its hosted cluster gone, and the address with it", facts: appsFacts{since: now}, before: &state{Phase: "Ready", ExternalIPs: []string{"192.0.2.1"}},
			want: state{Phase: "Pending", Reason: "KubeconfigMissing", Message: "the Infra has no hosted cluster"}, next: 5 * time.Minute},
		{name: "not checked yet", facts: appsFacts{cluster: followed(), since: now},
			want: state{Phase: "Pending", Reason: "AddressNotAssigned", Message: "the Service has not been checked yet"}, next: 5 * time.Minute},
		{name: "an address", facts: appsFacts{cluster: followed("192.0.2.1", "2001:db8::1")},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1", "2001:db8::1"}}},
		{name: "waiting", facts: appsFacts{cluster: followed(), since: now.Add(-time.Minute), outcome: found("PoolMissing", "make one")},
			want: state{Phase: "Pending", Reason: "PoolMissing", Message: "make one"}, next: 4 * time.Minute},
		{name: "waiting for too long", facts: appsFacts{cluster: followed(), since: now.Add(-5 * time.Minute), outcome: found("PoolMissing", "make one")},
			want: state{Phase: "Degraded", Reason: "PoolMissing", Message: "make one"}},
		{name: "a deadline of its own", apps: v1alpha1.AppsIngress{AddressDeadline: "30s"}, facts: appsFacts{cluster: followed(), since: now.Add(-time.Minute), outcome: found("MetalLBMissing", "none")},
			want: state{Phase: "Degraded", Reason: "MetalLBMissing", Message: "none"}},
		{name: "once degraded, no more pending", facts: appsFacts{cluster: followed(), since: now, outcome: found("PoolMissing", "make one")}, before: &state{Phase: "Degraded"},
			want: state{Phase: "Degraded", Reason: "PoolMissing", Message: "make one"}},
		{name: "what no time mends", facts: appsFacts{cluster: followed(), since: now, outcome: found("PoolExhausted", "enlarge it")},
			want: state{Phase: "Degraded", Reason: "PoolExhausted", Message: "enlarge it"}},
		{name: "assigned since the last look", facts: appsFacts{cluster: followed("192.0.2.1"), outcome: found("PoolExhausted", "enlarge it")},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}}},
		{name: "assigned and not announced", facts: appsFacts{cluster: followed("192.0.2.1"), outcome: found("NotAnnounced", "no speaker")},
			want: state{Phase: "Degraded", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}, Reason: "NotAnnounced", Message: "no speaker"}},
		{name: "withdrawn", facts: appsFacts{cluster: kept("192.0.2.1"), problems: problem("AddressWithdrawn", "gone"), outcome: found("PoolExhausted", "full")},
			want: state{Phase: "Degraded", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}, Reason: "AddressWithdrawn", Message: "gone"}},
		{name: "unreachable, with an address of before", facts: appsFacts{cluster: lost("192.0.2.1"), problems: problem("HostedClusterUnreachable", "no route")},
			want: state{Phase: "Degraded", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}, Reason: "HostedClusterUnreachable", Message: "no route"}},
		{name: "what explains the rest comes first", facts: appsFacts{cluster: lost(), since: now, problems: append(problem("AddressNotAssigned", "none"), problem("KubeconfigRejected", "exec")...)},
			want: state{Phase: "Degraded", Reason: "KubeconfigRejected", Message: "exec"}},
		{name: "of one reason, what was found in the cluster", facts: appsFacts{cluster: followed(), since: now, problems: problem("AddressNotAssigned", "none"), outcome: found("AddressNotAssigned", "does MetalLB run?")},
			want: state{Phase: "Pending", Reason: "AddressNotAssigned", Message: "does MetalLB run?"}, next: 5 * time.Minute},
		{name: "problems that are about something else", facts: appsFacts{cluster: followed("192.0.2.1"), problems: []model.Problem{{Reason: model.ReasonInvalidRange, Message: "DHCP"}}},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}}},
		{name: "static, whatever the guest is like", apps: v1alpha1.AppsIngress{Source: v1alpha1.AppsIngressSourceStatic}, facts: appsFacts{cluster: lost("192.0.2.1")},
			want: state{Phase: "Ready", ExternalIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.1"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.apps.Enabled = true
			tc.facts.object, tc.facts.now = &v1alpha1.Infra{}, now
			tc.facts.object.Spec.AppsIngress, tc.facts.object.Status.AppsIngress = &tc.apps, tc.before
			got, next := appsStatus(&tc.facts)
			got.ServiceName, got.ServiceNamespace = "", ""
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if wait := next.Sub(now); next.IsZero() != (tc.next == 0) || tc.next != 0 && wait != tc.next {
				t.Errorf("looks again after %v, want %v", wait, tc.next)
			}
		})
	}
}

// TestLastSyncTimeIsNoReasonToWrite keeps an Infra in which all is well from being written
// every moment.
func TestLastSyncTimeIsNoReasonToWrite(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	infra := &v1alpha1.Infra{}
	infra.Spec.AppsIngress = &v1alpha1.AppsIngress{Enabled: true}
	c := &model.Cluster{Apps: &model.Apps{Followed: true, Source: model.AppsHosted, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}
	look := func(synced time.Time, fault *guest.Fault) *metav1.Time {
		infra.Status.AppsIngress, _ = appsStatus(&appsFacts{object: infra, cluster: c, synced: synced, now: synced, outcome: outcome{fault: fault}})
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
		{"with other news", 2 * time.Minute, &guest.Fault{Reason: "NotAnnounced"}, at(2 * time.Minute)},
		{"long after", 8 * time.Minute, &guest.Fault{Reason: "NotAnnounced"}, at(8 * time.Minute)},
	} {
		if got := look(start.Add(tc.synced), tc.fault); !got.Equal(tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	if got := look(time.Time{}, nil); !got.Equal(at(8 * time.Minute)) {
		t.Errorf("while nothing is read: %v", got)
	}
}
