package watch

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// TestAccessDataChangesDuringAnAttempt changes the access data of a hosted cluster before the result of the
// previous attempt is stored. It is meant for the race detector.
func TestAccessDataChangesDuringAnAttempt(t *testing.T) {
	h := newHostedServices(nil, func() {}, slog.New(slog.DiscardHandler))
	for i := range 200 {
		h.follow(t.Context(), &model.Snapshot{Clusters: []*model.Cluster{{
			Ref:  model.Ref{Kind: "HostedCluster", Namespace: "clusters", Name: "demo"},
			Apps: &model.Apps{Hosted: &model.HostedAccess{Key: fmt.Sprint(i)}},
		}}})
	}
	h.group.Wait()
	list, _ := h.table.list()
	if len(list) != 1 {
		t.Fatalf("got %d Services, want 1", len(list))
	}
	s, ok := list[0].(*objects.AppsService)
	if !ok || s.Fault.Reason != string(v1alpha1.AppsIngressKubeconfigMissing) {
		t.Errorf("Service is %+v", list[0])
	}
}

// TestStateChangesOnlyWithAnAnnouncement changes the access data of a hosted cluster that has a fault. If the fault were
// cleared without an announcement, and the next attempt succeeded, the snapshot would keep the fault.
func TestStateChangesOnlyWithAnAnnouncement(t *testing.T) {
	var announced atomic.Int32
	h := newHostedServices(nil, func() { announced.Add(1) }, slog.New(slog.DiscardHandler))
	for i := range 3 {
		h.follow(t.Context(), &model.Snapshot{Clusters: []*model.Cluster{{
			Ref:  model.Ref{Kind: "HostedCluster", Namespace: "clusters", Name: "demo"},
			Apps: &model.Apps{Hosted: &model.HostedAccess{Key: fmt.Sprint(i)}},
		}}})
		h.group.Wait() // the attempt fails, because there is no Secret
	}
	if n := announced.Load(); n != 1 {
		t.Errorf("one fault was announced %d times", n)
	}
}

func TestStaleData(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	started := now.Add(-time.Hour)
	failed := func(lastSeen time.Time) []ResourceStatus {
		return []ResourceStatus{{Resource: "infras", Connected: true}, {Resource: "services", Namespace: "clusters", LastSeen: lastSeen, Error: "refused"}}
	}
	for _, tc := range []struct {
		name   string
		status Status
		want   string // message
	}{
		{"current", Status{At: now, Started: started, Synced: true, Since: now}, ""},
		{"never synced", Status{At: now, Started: started}, "xdsd has not read all objects from the API server since it started, and uses its snapshot file"},
		{"just started", Status{At: now, Started: now.Add(-10 * time.Second), Since: now.Add(-24 * time.Hour), Resources: failed(time.Time{})}, ""},
		{"a watch begins again", Status{At: now, Started: started, Synced: true, Since: now.Add(-time.Second), Resources: failed(now.Add(-time.Second))}, ""},
		{"a watch failed", Status{At: now, Started: started, Synced: true, Since: now.Add(-time.Minute), Resources: failed(now.Add(-time.Minute))}, "xdsd does not receive updates from the API server: its data is 1m0s old"},
		{"a watch never succeeded", Status{At: now, Started: started, Synced: true, Resources: failed(time.Time{})}, "xdsd does not receive updates of some objects from the API server"},
	} {
		list := tc.status.Problems("xdsd")
		if len(list) > 0 && list[0].Remedy != "" {
			t.Errorf("%s: remedy %q although no permission is missing", tc.name, list[0].Remedy)
		}
		switch {
		case tc.want == "" && len(list) == 0:
		case len(list) != 1 || list[0].Message != tc.want:
			t.Errorf("%s: %+v", tc.name, list)
		case tc.status.Resources != nil && !slices.Equal(list[0].Evidence, []string{"services in clusters: refused"}):
			t.Errorf("%s: evidence %q", tc.name, list[0].Evidence)
		}
	}
}

func TestDeniedRightIsInTheRemedy(t *testing.T) {
	const right = `User "system:serviceaccount:clusters:demo-proxy" cannot list resource "services" in API group "" in the namespace "clusters-demo"`
	now := time.Now()
	s := Status{At: now, Started: now.Add(-time.Hour), Resources: []ResourceStatus{{Resource: "services", Error: "services is forbidden: " + right + `: RBAC: role "x" not found`}}}
	list := s.Problems("xdsd")
	if len(list) != 1 || !strings.HasSuffix(list[0].Remedy, right) || !strings.Contains(list[0].Remedy, "kubectl oooi setup") {
		t.Errorf("%+v", list)
	}
}
