package setup

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

func TestCorefileHasTheManagementDomains(t *testing.T) {
	known := exampleKnown(t)
	known.ControlPlane = true
	domain := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"baseDomain": "mgmt.example.org", "domain": "apps.mgmt.example.org"}}}
	domain.SetGroupVersionKind(site.ClusterDNS)
	known.files = append(known.files, domain)
	plan, err := Make(known, exampleImages)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"ignition-server", "konnectivity-server", "oauth"} {
		if host += "-clusters-demo.apps.mgmt.example.org"; !strings.Contains(string(plan.YAML), " "+host) {
			t.Errorf("no zone contains %s, which OpenShift may generate later", host)
		}
	}
	if n := strings.Count(string(plan.YAML), "management apps.mgmt.example.org mgmt.example.org\n"); n != 2 {
		t.Errorf("%d server blocks have the domains, want 2", n)
	}
}

// TestZonesExcludeSiblingsOfHostnames checks that a hostname of the hosted cluster is a zone of its own. Names in
// these zones are answered with SERVFAIL before the objects are read, and names beside the hostname must not be.
func TestZonesExcludeSiblingsOfHostnames(t *testing.T) {
	known := exampleKnown(t)
	known.ControlPlane = true
	demo := hostedCluster(t, known)
	demo.Spec.KubeAPIServerDNSName = "api-demo.example.com"
	setHostedClusters(known, demo)
	plan, err := Make(known, exampleImages)
	if err != nil {
		t.Fatal(err)
	}
	want := "guard api-demo.example.com demo.example.com\n"
	if n := strings.Count(string(plan.YAML), want); n != 2 {
		t.Errorf("%d server blocks have %q, want 2:\n%s", n, want, plan.YAML)
	}
}
