package setup_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestSetupAdoptsOnlyOnRequest(t *testing.T) {
	s := newSite(t)
	s.Setup() // the CRDs, whose installation would be in the comparison below
	if _, said, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 {
		t.Fatal(said)
	}
	theirs := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-dns"}}
	if err := s.Client.Create(t.Context(), theirs, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	what := "ServiceAccount " + s.Namespace + "/demo-dns"
	s.Refused("error: " + what + " exists and was not created by setup: delete or rename it, or take it over with --adopt; teardown then deletes it\nerror: nothing was applied")

	s.Apply(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: demo-dns, namespace: %[1]s, labels: {app.kubernetes.io/managed-by: oooi}, annotations: {hostedcluster.densityops.com/infra: %[1]s/other}}}", s.Namespace))
	s.Refused("error: ConfigMap " + s.Namespace + "/demo-dns exists and belongs to Infra " + s.Namespace + "/other: delete or rename it")

	if said := s.Setup("--adopt", "--force-conflicts"); !strings.Contains(said, what+" configured") {
		t.Errorf("setup --adopt said\n%s", said)
	}
	if said := s.Setup(); said != "" {
		t.Errorf("the second time, without --adopt, setup says %s", said)
	}
	if _, said, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 || !strings.Contains(said, what+" deleted") {
		t.Errorf("teardown ended with %d and said\n%s", code, said)
	}
	s.System() // it was adopted, too
}

func TestSetupLeavesTheNamespaceOfOthers(t *testing.T) {
	s := newSite(t)
	key := types.NamespacedName{Name: "oooi-system"}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}
	s.System() // as if setup had not created it
	if err := s.Client.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}`))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for the next test it is somebody else's
		namespace.SetResourceVersion("")
		if err := s.Client.Patch(s.AfterTest(), namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}`))); err != nil {
			t.Error(err)
		}
	})
	s.Setup()
	if err := s.Client.Get(t.Context(), key, namespace); err != nil || namespace.Labels["app.kubernetes.io/managed-by"] != "" {
		t.Errorf("the namespace has the labels %v: %v", namespace.Labels, err)
	}
	if _, said, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 || !strings.Contains(said, "Namespace oooi-system is kept: setup did not create it\n") || !strings.Contains(said, "Deployment oooi-system/oooi-control deleted") {
		t.Errorf("teardown ended with %d and said\n%s", code, said)
	}
	if err := s.Client.Get(t.Context(), key, namespace); err != nil || namespace.DeletionTimestamp != nil {
		t.Errorf("the namespace is being deleted: %v", err)
	}

	// A release before this one labelled any namespace of that name: what others have in it keeps it.
	if err := s.Client.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": "oooi"}}}`))); err != nil {
		t.Fatal(err)
	}
	s.Setup()
	labels := map[string]string{"app": "operator"}
	operator := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-controller-manager"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "registry.example.com/old/oooi"}}},
		}},
	}
	if err := s.Client.Create(t.Context(), operator); err != nil {
		t.Fatal(err)
	}
	if _, said, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 || !strings.Contains(said, "Namespace oooi-system is kept: Deployment oooi-system/oooi-controller-manager exists in it and is not managed by setup\n") {
		t.Errorf("teardown ended with %d and said\n%s", code, said)
	}
	if err := s.Client.Delete(t.Context(), operator); err != nil {
		t.Error(err)
	}
}
