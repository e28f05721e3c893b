package site

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func object(kind Kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func TestManagementDomains(t *testing.T) {
	facts := NewFacts(time.Time{})
	facts.Add(object(ClusterDNS, "", "cluster", map[string]any{"baseDomain": "mgmt.example.com"}))
	facts.Add(object(ClusterIngress, "", "cluster", map[string]any{"domain": "apps.mgmt.example.com", "appsDomain": "shops.example.org"}))
	if got, want := facts.Management(), []string{"apps.mgmt.example.com", "mgmt.example.com", "shops.example.org"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWithReplacesObjects checks that a copy has other objects, and that the facts and the objects do not change.
func TestWithReplacesObjects(t *testing.T) {
	facts := NewFacts(time.Time{})
	live, other := object(Infras, "clusters", "demo", map[string]any{"from": "cluster"}), object(Infras, "clusters", "lab", nil)
	facts.Add(live)
	facts.Add(other)
	file, added := object(Infras, "clusters", "demo", map[string]any{"from": "file"}), object(Infras, "clusters", "new", nil)
	file.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"})
	with := facts.With(file, added)
	if got := with.List(Infras, "clusters"); len(got) != 3 || got[0] != file || got[1] != other || got[2] != added {
		t.Errorf("the copy has %v", got)
	}
	if len(file.GetAnnotations()) != 1 {
		t.Error("the object has changed")
	}
	if facts.Get(Infras, "clusters", "demo") != live || facts.Get(Infras, "clusters", "new") != nil || len(facts.List(Infras, "")) != 2 {
		t.Errorf("the facts have changed: %v", facts.List(Infras, ""))
	}
}

// TestFailedRequests checks which data is missing because of a failure, and which because of permissions.
func TestFailedRequests(t *testing.T) {
	facts := NewFacts(time.Time{})
	facts.unread[place{Pods, "clusters"}] = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no permission"))
	if err := facts.Failed(); err != nil {
		t.Errorf("a missing permission is a failure: %v", err)
	}
	facts.unread[place{Nodes, ""}] = errors.New("connection refused")
	if err := facts.With().Failed(); err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "no permission") {
		t.Errorf("failed: %v", err)
	}
	if got := facts.UnreadEverywhere(); !slices.Equal(got, []string{"connection refused"}) {
		t.Errorf("unread in all namespaces: %q", got)
	}
}
