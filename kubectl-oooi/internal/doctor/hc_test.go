package doctor

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/model"
)

func TestConditionsOfHostedClusters(t *testing.T) {
	for _, tc := range []struct {
		kind, status, reason string
		want                 []Severity
	}{
		{"Available", "True", "AsExpected", nil},
		{"Available", "False", "ComponentsNotAvailable", []Severity{Warn}},
		{"Available", "False", "KubeconfigWaitingForCreate", []Severity{Fail}},
		{"EtcdAvailable", "False", "EtcdStatefulSetNotFound", []Severity{Fail}},
		{"Degraded", "True", "UnavailableReplicas", []Severity{Warn}},
		{"Progressing", "True", "WaitingForAvailable", nil},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": tc.kind, "status": tc.status, "reason": tc.reason, "message": "catalog-operator is not available"},
		}}}}
		var got []Severity
		for _, f := range checkConditions(model.Ref{Kind: "HostedCluster", Namespace: "clusters", Name: "demo"}, u) {
			got = append(got, f.Severity)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s=%s for %s: got %v, want %v", tc.kind, tc.status, tc.reason, got, tc.want)
		}
	}
}
