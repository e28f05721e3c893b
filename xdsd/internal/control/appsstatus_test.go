package control

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/golden"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// TestAppsStatus runs the transcript testdata/apps.txt: each line has the facts about an Infra, of which cluster is followed, unreachable, of
// another Infra (ofOther) or known from a status (fromStatus), and waiting is the time without an address. The output is the status.
func TestAppsStatus(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	golden.Transcript(t, "testdata/apps.txt", func(line string) []string {
		var in struct {
			Apps            v1alpha1.AppsIngress        `json:"apps"`
			Cluster         string                      `json:"cluster"`
			Addresses       []netip.Addr                `json:"addresses"`
			Waiting         *metav1.Duration            `json:"waiting"`
			Problems, Fault map[string]string           // messages by reason
			Warning         string                      `json:"warning"`
			Before          *v1alpha1.AppsIngressStatus `json:"before"`
		}
		lab.Must(t, yaml.UnmarshalStrict([]byte(line), &in))
		in.Apps.Enabled = true
		f := &appsFacts{object: &v1alpha1.Infra{}, now: now, outcome: outcome{warning: in.Warning}}
		f.object.Spec.AppsIngress, f.object.Status.AppsIngress = &in.Apps, in.Before
		if in.Waiting != nil {
			f.waitingSince = now.Add(-in.Waiting.Duration)
		}
		if in.Cluster != "" {
			f.cluster = &model.Cluster{
				Ref:  model.Ref{Kind: "HostedCluster", Namespace: "clusters", Name: "demo"},
				Apps: &model.Apps{Followed: in.Cluster != "unreachable", Addresses: in.Addresses},
			}
			if len(in.Addresses) > 0 {
				f.cluster.Apps.Source = model.AppsHosted
			}
		}
		switch in.Cluster {
		case "ofOther":
			f.cluster.Apps.Infra = &model.Ref{Kind: "Infra", Namespace: "clusters", Name: "first"}
		case "fromStatus":
			f.cluster.Apps.Source = model.AppsStatus
		}
		for _, reason := range slices.Sorted(maps.Keys(in.Problems)) {
			f.problems = append(f.problems, model.Problem{Reason: model.Reason(reason), Message: in.Problems[reason]})
		}
		for reason, message := range in.Fault {
			f.outcome.fault = &guest.Fault{Reason: v1alpha1.AppsIngressReason(reason), Message: message}
		}
		status, err := json.Marshal(appsStatus(f))
		lab.Must(t, err)
		return []string{string(status)}
	})
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
