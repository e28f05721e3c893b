package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// TestForeignObjectsInTheInventoryAreKept adds objects to the inventory that setup did not create for the Infra, as
// a user who may edit the ConfigMap could.
func TestForeignObjectsInTheInventoryAreKept(t *testing.T) {
	s := newSite(t)
	s.Setup()
	infra := types.NamespacedName{Namespace: s.Namespace, Name: "demo"}
	const marks = "labels: {app.kubernetes.io/managed-by: oooi}, annotations: {hostedcluster.densityops.com/infra: %s}"
	other, own := fmt.Sprintf(marks, s.Namespace+"/other"), fmt.Sprintf(marks, infra)
	for _, o := range []string{
		"kind: ConfigMap, metadata: {name: foreign, namespace: %s}", "kind: Secret, metadata: {name: fsec, namespace: %s-demo, " + own + "}",
		"kind: ServiceAccount, metadata: {name: others, namespace: %s, " + other + "}", "kind: ConfigMap, metadata: {name: obsolete, namespace: %s, " + own + "}",
	} {
		s.Apply("{apiVersion: v1, " + fmt.Sprintf(o, s.Namespace) + "}")
	}
	foreign := []inventory.Entry{
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: s.Namespace, Name: "foreign"},
		{APIVersion: "v1", Kind: "Secret", Namespace: s.Namespace + "-demo", Name: "fsec"},
		{APIVersion: "v1", Kind: "ServiceAccount", Namespace: s.Namespace, Name: "others"},
		{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "oooi-system", Name: "oooi-control"},
	}
	obsolete := inventory.Entry{APIVersion: "v1", Kind: "ConfigMap", Namespace: s.Namespace, Name: "obsolete"}
	exists := func(e *inventory.Entry) bool {
		t.Helper()
		u := e.Object()
		err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		e.UID = u.GetUID()
		return err == nil && u.GetDeletionTimestamp() == nil
	}
	for i := range foreign {
		exists(&foreign[i])
	}
	exists(&obsolete)
	add := func() {
		t.Helper()
		listed, err := inventory.Load(t.Context(), s.Client, infra)
		if err == nil {
			err = inventory.Save(t.Context(), s.Client, infra, append(append(listed, foreign...), obsolete), "another-manager")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	warned := func(command, stderr string) {
		t.Helper()
		for _, e := range foreign {
			if strings.Count(stderr, fmt.Sprintf("Warning: %s is kept, and no longer in the inventory: ", e)) != 1 {
				t.Errorf("%s printed no warning about %s, or several:\n%s", command, e, stderr)
			}
			if now := e; !exists(&now) || now.UID != e.UID {
				t.Errorf("%s deleted %s", command, e)
			}
		}
	}

	add()
	out, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--dry-run=server")
	if code != 0 || !strings.Contains(out, obsolete.String()+"\n") || slices.ContainsFunc(foreign[:3], func(e inventory.Entry) bool { return strings.Contains(out, e.String()+"\n") }) {
		t.Errorf("teardown --dry-run=server exited with %d, stdout\n%s", code, out)
	}
	warned("teardown --dry-run=server", stderr)
	out, stderr, code = s.Run("setup", "-f", "FILE", "--dry-run=server")
	if code != 0 || !strings.Contains(out, obsolete.String()+" deleted") || strings.Count(out, " deleted") != 1 {
		t.Errorf("setup --dry-run=server exited with %d, stdout\n%s", code, out)
	}
	warned("setup --dry-run=server", stderr)
	stderr = s.Setup()
	warned("setup", stderr)
	if !strings.Contains(stderr, obsolete.String()+" deleted") || strings.Count(stderr, " deleted") != 1 {
		t.Errorf("setup printed\n%s", stderr)
	}
	if stderr := s.Setup(); stderr != "" {
		t.Errorf("a second setup printed\n%s", stderr)
	}

	foreign = foreign[:3] // teardown of the last Infra deletes control
	add()
	if _, stderr, code = s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 {
		t.Errorf("teardown exited with %d", code)
	}
	warned("teardown", stderr)
}
