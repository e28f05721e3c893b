package inventory_test

import (
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/test/lab"
)

// plane has no garbage collector, as if that had not learned of our kinds yet.
var plane = lab.Shared{Config: lab.Config{Name: "inventory", CRDs: []lab.CRDSet{lab.Oooi}}}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	lab.Main(m, &plane)
}

func TestFinishOrphaningOnlyOfDeletedOwners(t *testing.T) {
	cp := plane.Get(t)
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	namespace := cp.Namespace(t)
	owner := inventory.Entry{APIVersion: "hostedcluster.densityops.com/v1alpha1", Kind: "Infra", Namespace: namespace, Name: "demo"}
	if err := cp.ApplyYAML(t.Context(), []byte(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: `+namespace+`, finalizers: [orphan]}
spec:
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100, dnsServers: [203.0.113.53]}
  infraComponents: {dns: {serverIP: 192.0.2.3}}
`)); err != nil {
		t.Fatal(err)
	}
	exists := func() bool {
		t.Helper()
		u := owner.Object()
		err := c.Get(t.Context(), client.ObjectKeyFromObject(u), u)
		if err != nil && !apierrors.IsNotFound(err) || err == nil && len(u.GetFinalizers()) != 1 {
			t.Fatalf("finalizers %q, %v", u.GetFinalizers(), err)
		}
		return err == nil
	}
	created := owner.Object()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(created), created); err != nil {
		t.Fatal(err)
	}
	owner = inventory.Of(created)
	owner.FinishOrphaning(t.Context(), c)
	if !exists() {
		t.Fatal("an Infra that was not being deleted was deleted")
	}
	if removed, err := owner.Delete(t.Context(), c); err != nil || !removed {
		t.Fatalf("deleted %t, %v", removed, err)
	}
	other := owner
	other.UID = "another"
	other.FinishOrphaning(t.Context(), c)
	if !exists() {
		t.Fatal("an Infra with another UID was deleted")
	}
	owner.FinishOrphaning(t.Context(), c)
	if exists() {
		t.Error("the Infra still exists")
	}
}
