package control

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// TestSummaryHasNoFailures merges the reports of two replicas. The numbers of failures would change the summary each minute.
func TestSummaryHasNoFailures(t *testing.T) {
	object := &v1alpha1.ProxyServer{}
	object.Status.Replicas = []v1alpha1.ReplicaStatus{
		{Pod: "a", Backends: []v1alpha1.BackendStatus{{Name: "web", Endpoints: 2, Healthy: 1, FailedConnections: 3, FailedHealthChecks: 1}}},
		{Pod: "b", Backends: []v1alpha1.BackendStatus{{Name: "web", Endpoints: 3, Healthy: 2, FailedConnections: 7, FailedHealthChecks: 9}}},
	}
	f := &proxyFacts{object: object, proxy: &model.ProxyServer{Upstreams: []*model.Upstream{{Name: "proxy/a/b/web", Backend: "web"}}}}
	if diff := cmp.Diff([]v1alpha1.BackendStatus{{Name: "web", Endpoints: 3, Healthy: 1}}, f.backends()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if object.Status.Replicas[0].Backends[0].FailedConnections != 3 {
		t.Error("the entry of a replica was changed")
	}
}
