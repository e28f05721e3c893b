package setup

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/objects"
)

// TestPlanOfClusters checks what setup says before it changes anything, and the domains for the cluster DNS.
func TestPlanOfClusters(t *testing.T) {
	console := objects.ComponentRoute{Namespace: "openshift-console", Name: "console", Hostname: "console.example.org"}
	for _, tc := range []struct {
		name    string
		change  func(demo *objects.HostedCluster) *objects.HostedCluster // returns another cluster
		domains []string
		warning string // empty for none
		guarded string
	}{
		{"as in the example", func(*objects.HostedCluster) *objects.HostedCluster { return nil }, []string{"demo.example.com"}, "", "guard demo.example.com"},
		{"a custom hostname of the console", func(demo *objects.HostedCluster) *objects.HostedCluster {
			demo.Spec.Configuration = &objects.HostedClusterConfiguration{Ingress: &objects.IngressConfiguration{ComponentRoutes: []objects.ComponentRoute{console}}}
			return nil
		}, []string{"demo.example.com", "console.example.org"}, "", "guard console.example.org demo.example.com"},
		{"API server by a Route without a hostname", func(demo *objects.HostedCluster) *objects.HostedCluster {
			demo.Spec.Services = []objects.ServicePublishing{{Service: "APIServer", Strategy: objects.PublishingStrategy{Type: "Route"}}}
			return nil
		}, []string{"demo.example.com"}, "HyperShift never completes an API server", "guard demo.example.com"},
		{"in an apps domain of an older cluster", func(demo *objects.HostedCluster) *objects.HostedCluster {
			older := *demo
			older.Name, older.Spec.DNS.BaseDomain = "lab", "example.com"
			older.CreationTimestamp = metav1.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
			demo.CreationTimestamp = metav1.Date(2025, 2, 1, 0, 0, 0, 0, time.UTC)
			demo.Spec.DNS.BaseDomain = "apps.lab.example.com"
			return &older
		}, nil, "the domain lies in an apps domain of HostedCluster clusters/lab, which is older", "demo.apps.lab.example.com\n"},
		{"with a younger cluster in its apps domain", func(demo *objects.HostedCluster) *objects.HostedCluster {
			younger := *demo
			younger.Name, younger.Spec.DNS.BaseDomain = "lab", "apps.demo.example.com"
			demo.CreationTimestamp = metav1.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
			younger.CreationTimestamp = metav1.Date(2025, 2, 1, 0, 0, 0, 0, time.UTC)
			return &younger
		}, []string{"demo.example.com"}, "", "guard demo.example.com"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known := exampleKnown(t)
			known.ControlPlane = true
			list := []*objects.HostedCluster{hostedCluster(t, known)}
			if other := tc.change(list[0]); other != nil {
				list = append(list, other)
			}
			setHostedClusters(known, list...)
			plan, err := Make(known, exampleImages)
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.Domains(); !slices.Equal(got, tc.domains) {
				t.Errorf("the cluster DNS forwards %q, want %q", got, tc.domains)
			}
			if got := strings.Join(plan.Warnings, "\n"); (got == "") != (tc.warning == "") || !strings.Contains(got, tc.warning) {
				t.Errorf("warnings %q, want %q", got, tc.warning)
			}
			if !strings.Contains(string(plan.YAML), tc.guarded) {
				t.Errorf("the Corefile does not contain %q", tc.guarded)
			}
		})
	}
}
