package setup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// TestReferenceWithoutNamespaceIsPinned checks which namespace setup writes into a reference to a HostedCluster.
func TestReferenceWithoutNamespaceIsPinned(t *testing.T) {
	for _, tc := range []struct {
		name   string
		exist  []string // namespaces with a HostedCluster demo
		served string   // the namespace in the Infra of the cluster; empty if that Infra does not exist
		want   string
	}{
		{"in the Infra's namespace", []string{"tenant"}, "", "tenant"},
		{"in the default namespace", []string{"clusters"}, "", "clusters"},
		{"in both", []string{"clusters", "tenant"}, "", "tenant"},
		{"in both, and a site that serves the other one", []string{"clusters", "tenant"}, "clusters", "clusters"},
		{"the one that the site served is gone", []string{"tenant"}, "clusters", "tenant"},
		{"in neither", []string{"other"}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known := exampleKnown(t)
			var exist []*objects.HostedCluster
			for _, namespace := range tc.exist {
				exist = append(exist, &objects.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "demo"}})
			}
			setHostedClusters(known, exist...)
			known.Infra.Namespace = "tenant"
			known.Infra.Spec.HostedClusterRef = &v1alpha1.HostedClusterReference{Name: "demo"}
			known.Written.SetNamespace("tenant")
			unstructured.RemoveNestedField(known.Written.Object, "spec", "hostedClusterRef", "namespace")
			if tc.served != "" {
				known.before = known.Infra.DeepCopy()
				known.before.Spec.HostedClusterRef.Namespace = tc.served
			}
			if err := known.pinHostedCluster(); err != nil {
				t.Fatal(err)
			}
			written, _, _ := unstructured.NestedString(known.Written.Object, "spec", "hostedClusterRef", "namespace")
			if got := known.Infra.Spec.HostedClusterRef.Namespace; got != tc.want || written != tc.want {
				t.Errorf("the namespace is %q, written %q, want %q", got, written, tc.want)
			}
		})
	}
}

// TestObjectsOfTheClusterTakePrecedence covers objects in files that the cluster has as well: setup does not apply those in files.
func TestObjectsOfTheClusterTakePrecedence(t *testing.T) {
	for infraID, warnings := range map[string]int{"demo-x7k2p": 0, "other": 1} {
		known := exampleKnown(t)
		hc := hostedCluster(t, known)
		hc.Spec.InfraID = "demo-x7k2p"
		live := objectOf(site.HostedClusters, hc)
		if err := unstructured.SetNestedField(live.Object, "Always", "spec", "defaultOfTheAPIServer"); err != nil {
			t.Fatal(err)
		}
		known.live = site.NewFacts(time.Now()).With(live)
		hc.Spec.InfraID = infraID
		setHostedClusters(known, hc)
		known.dropPresent()
		if got := known.site().Cluster.InfraID; got != "demo-x7k2p" || len(known.ignored) != warnings {
			t.Errorf("infraID %s in the file: the plan has %s, and the warnings %q", infraID, got, known.ignored)
		}
	}
}
