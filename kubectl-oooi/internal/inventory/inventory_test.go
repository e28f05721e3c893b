package inventory_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/test/lab"
)

var plane = lab.Shared{Config: lab.Config{Name: "inventory", CRDs: []lab.CRDSet{lab.Oooi}}}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	lab.Main(m, &plane)
}

// TestWaitForDeletionNamesAnAPIThatIsDown deletes a namespace of a cluster with an APIService that does not answer. The
// namespace controller does not delete the namespace.
func TestWaitForDeletionNamesAnAPIThatIsDown(t *testing.T) {
	cp := lab.New(t, lab.Config{Name: "undiscovered", ControllerManager: true})
	c, err := client.New(cp.RESTConfig(), client.Options{})
	lab.Must(t, err)
	cp.MustApply(t, `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.down.example.com}
spec: {group: down.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {namespace: default, name: down}}
---
apiVersion: v1
kind: Namespace
metadata: {name: deleted, labels: {app.kubernetes.io/managed-by: oooi}}
`)
	e := inventory.Entry{APIVersion: "v1", Kind: "Namespace", Name: "deleted"}
	if deleted, err := e.Delete(t.Context(), c); err != nil || deleted {
		t.Fatalf("deleted a namespace without its UID: %t, error %v", deleted, err)
	}
	live := e.Object()
	lab.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(live), live))
	e = inventory.Of(live)
	if deleted, err := e.Delete(t.Context(), c); err != nil || !deleted {
		t.Fatalf("deleted: %t, error %v", deleted, err)
	}
	for end := time.Now().Add(lab.WaitTimeout); ; { // until the namespace controller has set the condition
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := e.WaitForDeletion(ctx, c)
		cancel()
		if err != nil && strings.Contains(err.Error(), "down.example.com/v1") {
			return
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("waiting ended with %v", err)
		}
	}
}

func TestWaitForDeletionNamesWhatRemains(t *testing.T) {
	cp := plane.Get(t)
	c, err := client.New(cp.RESTConfig(), client.Options{})
	lab.Must(t, err)
	namespace := cp.Namespace(t)
	waiting := namespace + "-waiting"
	cp.MustApply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: held, namespace: `+namespace+`, finalizers: [example.com/hold, example.com/audit]}
---
apiVersion: v1
kind: Namespace
metadata: {name: `+waiting+`}
`)
	entries := []inventory.Entry{{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: "held"}, {APIVersion: "v1", Kind: "Namespace", Name: waiting}}
	for _, e := range entries {
		lab.Must(t, c.Delete(t.Context(), e.Object()))
	}
	t.Cleanup(func() { // without finalizers the ConfigMap is deleted
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
		lab.Report(t, c.Patch(context.Background(), entries[0].Object(), patch))
	})
	conditions := client.RawPatch(types.MergePatchType, []byte(`{"status": {"conditions": [
		{"type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain", "message": "Some resources are remaining: infras. has 1 resource instances"},
		{"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "reason": "ResourcesDiscovered", "message": "All resources successfully discovered"}]}}`))
	lab.Must(t, c.Status().Patch(t.Context(), entries[1].Object(), conditions))
	for i, want := range []string{
		"waiting for the deletion of ConfigMap " + namespace + "/held, which has finalizers example.com/hold, example.com/audit: context deadline exceeded",
		"waiting for the deletion of Namespace " + waiting + "; NamespaceContentRemaining: Some resources are remaining: infras. has 1 resource instances: context deadline exceeded",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := entries[i].WaitForDeletion(ctx, c); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		cancel()
	}
}
