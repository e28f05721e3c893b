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
)

func TestManagementDomains(t *testing.T) {
	config := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	}
	got := ManagementDomains([]*unstructured.Unstructured{
		config(map[string]any{"baseDomain": "mgmt.example.com"}), config(map[string]any{"domain": "apps.mgmt.example.com", "appsDomain": "shops.example.org"}), config(nil),
	})
	if want := []string{"apps.mgmt.example.com", "mgmt.example.com", "shops.example.org"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// listing is a client that serves no kind but one, of which it returns no object, or an error.
type listing struct {
	client.Client
	kind string
	err  error
}

func (c listing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if kind := list.GetObjectKind().GroupVersionKind().Kind; kind != c.kind {
		return &meta.NoKindMatchError{}
	}
	return c.err
}

// TestMissingRights checks which objects are optional.
func TestMissingRights(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for _, tc := range []struct {
		name          string
		place         place
		err           error
		fails, served bool
	}{
		{"optional objects", place{kind: podKind}, forbidden, false, true},
		{"required objects", place{kind: podKind, required: true}, forbidden, true, true},
		{"objects that do not exist", place{kind: podKind, required: true}, nil, false, true},
		{"a kind that is not served", place{kind: leaseKind, required: true}, nil, false, false},
		{"a failing API server", place{kind: podKind}, errors.New("internal error"), true, true},
	} {
		o := clusterObjects{}
		if err := o.read(t.Context(), listing{kind: podKind.Kind, err: tc.err}, []place{tc.place}); (err != nil) != tc.fails || (o[tc.place.kind] != nil) != tc.served {
			t.Errorf("%s: %v, served %t", tc.name, err, (o[tc.place.kind] != nil))
		}
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
