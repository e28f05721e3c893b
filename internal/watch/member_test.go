package watch

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// A hosted cluster may be reached in another way before what is found on the former one is written
// down. The race detector looks on.
func TestAnotherWayIntoAHostedClusterWhileTheFormerIsTried(t *testing.T) {
	h := newHosted(nil, slog.New(slog.DiscardHandler))
	h.changed = func() {}
	for i := range 200 {
		h.follow(t.Context(), &model.Snapshot{Clusters: []*model.Cluster{{
			Ref:  model.Ref{Kind: "HostedCluster", Namespace: "clusters", Name: "demo"},
			Apps: &model.Apps{Hosted: &model.HostedAccess{Key: fmt.Sprint(i)}},
		}}})
	}
	h.wait()
	list := h.list()
	if len(list) != 1 {
		t.Fatalf("%d are followed", len(list))
	}
	s, ok := list[0].(*objects.AppsService)
	if !ok || s.Fault.Reason != string(v1alpha1.AppsIngressKubeconfigMissing) {
		t.Errorf("what is known is %+v", list[0])
	}
}
