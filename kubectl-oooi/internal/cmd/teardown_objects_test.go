package cmd

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestTeardownLeavesNothing(t *testing.T) {
	s := newSite(t)
	s.DeleteSystemNamespace()
	before := slices.DeleteFunc(s.Everything(), func(o string) bool { // without shared objects that earlier tests created
		return strings.Contains(o, "oooi-") || strings.HasPrefix(o, "CustomResourceDefinition") && strings.Contains(o, "hostedcluster.densityops.com")
	})
	s.Setup()
	out, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--dry-run=client")
	if code != 0 || !strings.HasPrefix(out, "Infra "+s.Namespace+"/demo\n") || !strings.Contains(out, "StatefulSet "+s.Namespace+"/demo-dns\n") {
		t.Errorf("teardown --dry-run=client exited with %d, stdout\n%s\nstderr %s", code, out, stderr)
	}
	s.Expect(1, "teardown demo -n $NS", "--yes")
	s.Expect(1, "teardown demo -n $NS --yes --timeout 1ns", "error: not done within --timeout 1ns: ")
	s.Expect(0, "teardown demo -n $NS --yes --crds")
	s.Unchanged(before)
	s.Expect(1, "teardown demo -n $NS --yes", "no objects that setup created for Infra $NS/demo were found")
	s.WaitForSystemNamespace()
}

// TestTeardownDryRun checks that a dry run deletes nothing, and that only --dry-run=server checks the user's rights.
func TestTeardownDryRun(t *testing.T) {
	s := newSite(t)
	s.Setup()
	s.Grant("reader-"+s.Namespace, `[{apiGroups: ["*"], resources: ["*"], verbs: [get, list]}]`)
	reader, err := s.ControlPlane.UserKubeconfig("reader-" + s.Namespace)
	s.Must(err)
	before := s.Everything()
	admin := s.Kubeconfig
	for _, tc := range []struct {
		flag, kubeconfig string
		code             int
		message          string
	}{
		{"--dry-run=client", admin, 0, ""},
		{"--dry-run=server", admin, 0, ""},
		{"--dry-run=client", reader, 0, ""},
		{"--dry-run=server", reader, 1, "deleting Infra " + s.Namespace + "/demo: "},
		{"--dry-run=yes", admin, 1, `invalid argument "yes" for "--dry-run" flag: want one of: none, client, server`},
		{"--dry-run", admin, 1, "flag needs an argument: --dry-run"},
	} {
		s.Kubeconfig = tc.kubeconfig
		out, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, tc.flag)
		if code != tc.code || !strings.Contains(stderr, tc.message) || code == 0 && !strings.HasPrefix(out, "Infra "+s.Namespace+"/demo\n") {
			t.Errorf("teardown %s exited with %d, stderr %q, stdout\n%s", tc.flag, code, stderr, out)
		}
	}
	s.Unchanged(before)
}

func TestTeardownKeepsLeasesOfAnotherInfra(t *testing.T) {
	s := newSite(t)
	s.Setup()
	lease := func(infra string) string {
		return fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %[1]s.%[2]s.192.0.2.10, namespace: %[1]s, labels: {leasedb.densityops.com/pool: %[1]s.%[2]s}}
spec: {holderIdentity: %[1]s/vm/default, renewTime: "2026-01-02T03:04:05.000000Z"}
`, s.Namespace, infra)
	}
	s.Apply(lease("demo") + "---" + lease("demo.east"))
	out, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--dry-run=client", "--leases")
	if code != 0 || !strings.Contains(out, "Lease "+s.Namespace+"/"+s.Namespace+".demo.192.0.2.10\n") || strings.Contains(out, "demo.east") {
		t.Errorf("teardown exited with %d, stderr %s, stdout\n%s", code, stderr, out)
	}
}

func TestTeardownKeepsObjectsOfOthers(t *testing.T) {
	s := newSite(t)
	s.Setup()
	// Another client replaces one of the objects by one of the same name.
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.ConfigOf("demo-dns")}}
	s.Must(s.Client.Delete(t.Context(), theirs))
	theirs.Data = map[string]string{"mine": "yes"}
	theirs.ResourceVersion = ""
	s.Must(s.Client.Create(t.Context(), theirs))
	s.Expect(0, "teardown demo -n $NS --yes --crds")
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Error(err)
	}
}
