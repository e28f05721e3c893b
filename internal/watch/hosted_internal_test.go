package watch

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

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
