package cmd

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

func TestTeardownLeavesNothing(t *testing.T) {
	s := newSite(t)
	s.DeleteSystemNamespace()
	before := slices.DeleteFunc(s.Everything(), func(o string) bool { // without shared objects that earlier tests created
		return strings.Contains(o, "oooi-") || strings.HasPrefix(o, "CustomResourceDefinition") && strings.Contains(o, "hostedcluster.densityops.com")
	})
	s.Setup()
	s.Expect(0, "teardown demo -n $NS --yes --crds")
	s.Unchanged(before)
	s.Expect(1, "teardown demo -n $NS --yes", "no objects that setup created for Infra $NS/demo were found")
	s.WaitForSystemNamespace()
}

func TestTeardownKeepsOtherObjects(t *testing.T) {
	s := newSite(t)
	s.Setup()
	// Another client replaces one of the objects by one of the same name.
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.ConfigOf("demo-dns")}}
	s.Must(s.Client.Delete(t.Context(), theirs))
	theirs.Data = map[string]string{"mine": "yes"}
	theirs.ResourceVersion = ""
	s.Must(s.Client.Create(t.Context(), theirs))
	s.Expect(0, "teardown demo -n $NS --yes --crds")
	lab.Report(t, s.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
}
