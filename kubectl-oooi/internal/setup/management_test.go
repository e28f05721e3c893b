package setup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// configs is a client that returns, by kind, the spec of an object of config.openshift.io, or an error.
type configs struct {
	client.Client
	kinds map[string]any
}

func (c configs) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	switch found := c.kinds[kind].(type) {
	case error:
		return found
	case map[string]any:
		if u, ok := o.(*unstructured.Unstructured); ok && key.Name == "cluster" {
			u.Object["spec"] = found
		}
		return nil
	default:
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	}
}

func TestManagementDomains(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "cluster", nil)
	for _, tc := range []struct {
		name  string
		kinds map[string]any
		want  []string
		fails bool
	}{
		{"OpenShift", map[string]any{"DNS": map[string]any{"baseDomain": "mgmt.example.com"}, "Ingress": map[string]any{"domain": "apps.mgmt.example.com", "appsDomain": "shops.example.org"}},
			[]string{"apps.mgmt.example.com", "mgmt.example.com", "shops.example.org"}, false},
		{"plain Kubernetes", map[string]any{"DNS": &meta.NoKindMatchError{}, "Ingress": &meta.NoKindMatchError{}}, nil, false},
		{"no right to read", map[string]any{"DNS": forbidden, "Ingress": forbidden}, nil, false},
		{"no objects", nil, nil, false},
		{"a failing API server", map[string]any{"DNS": errors.New("internal error")}, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known := &Known{}
			d := &discovery{ctx: t.Context(), Reader: &read.Reader{Client: configs{kinds: tc.kinds}}, known: known}
			if err := d.management(); (err != nil) != tc.fails {
				t.Fatal(err)
			}
			if !slices.Equal(known.Management, tc.want) {
				t.Errorf("got %q, want %q", known.Management, tc.want)
			}
		})
	}
}

func TestCorefileHasTheManagementDomains(t *testing.T) {
	known := exampleKnown(t)
	known.ControlPlane, known.Management = true, []string{"apps.mgmt.example.org", "mgmt.example.org"}
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
	known.Objects.HostedClusters[0].Spec.KubeAPIServerDNSName = "api-demo.example.com"
	plan, err := Make(known, exampleImages)
	if err != nil {
		t.Fatal(err)
	}
	want := "guard api-demo.example.com demo.example.com\n"
	if n := strings.Count(string(plan.YAML), want); n != 2 {
		t.Errorf("%d server blocks have %q, want 2:\n%s", n, want, plan.YAML)
	}
}
