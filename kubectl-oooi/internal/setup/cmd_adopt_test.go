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
	s.Setup() // installs the CRDs, which would otherwise differ in the comparison below
	s.Expect(0, "teardown demo -n $NS --yes")
	theirs := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-dns"}}
	s.Must(s.Client.Create(t.Context(), theirs, client.FieldOwner("another-manager")))
	what := "ServiceAccount " + s.Namespace + "/demo-dns"
	s.Refused("error: " + what + " exists and was not created by setup: delete or rename it, or take it over with --adopt; teardown then deletes it\nerror: nothing was applied")

	s.Apply(fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: demo-dhcp, namespace: %[1]s, labels: {app.kubernetes.io/managed-by: oooi}, annotations: {hostedcluster.densityops.com/infra: %[1]s/other}}}", s.Namespace))
	s.Refused("error: ServiceAccount " + s.Namespace + "/demo-dhcp exists and belongs to Infra or ProxyServer " + s.Namespace + "/other: rename the Infra")
	s.Must(s.Client.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-dhcp"}}))

	s.Expect(0, "setup -f FILE --wait=false --adopt --force-conflicts", what+" configured")
	s.SetupAgain()
	s.Expect(0, "teardown demo -n $NS --yes", what+" deleted")
	s.WaitForSystemNamespace() // setup --adopt also adopted the namespace, so teardown deleted it
}

func TestSystemNamespaceOfOthersIsKept(t *testing.T) {
	s := newSite(t)
	key := types.NamespacedName{Name: "oooi-system"}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}
	s.WaitForSystemNamespace() // created without setup
	s.Must(s.Client.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}`))))
	t.Cleanup(func() { // other tests expect a namespace that setup did not create
		namespace.SetResourceVersion("")
		if err := s.Client.Patch(s.AfterTest(), namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}`))); err != nil {
			t.Error(err)
		}
	})
	s.Setup()
	if err := s.Client.Get(t.Context(), key, namespace); err != nil || namespace.Labels["app.kubernetes.io/managed-by"] != "" {
		t.Errorf("the namespace has the labels %v: %v", namespace.Labels, err)
	}
	s.Expect(0, "teardown demo -n $NS --yes", "Namespace oooi-system is kept: setup did not create it\n", "Deployment oooi-system/oooi-control deleted")
	if err := s.Client.Get(t.Context(), key, namespace); err != nil || namespace.DeletionTimestamp != nil {
		t.Errorf("the namespace is being deleted: %v", err)
	}

	// An earlier release labelled any namespace of this name. Teardown keeps it because of the objects of others in it.
	s.Must(s.Client.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": "oooi"}}}`))))
	s.Setup()
	labels := map[string]string{"app": "operator"}
	operator := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-controller-manager"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "registry.example.com/old/oooi"}}},
		}},
	}
	s.Must(s.Client.Create(t.Context(), operator))
	s.Expect(0, "teardown demo -n $NS --yes", "Namespace oooi-system is kept: Deployment oooi-system/oooi-controller-manager exists in it and is not managed by setup\n")
	if err := s.Client.Delete(t.Context(), operator); err != nil {
		t.Error(err)
	}
}

// TestObjectsOfAnotherInfraAreNotAdopted has two Infras whose namespaces and names give the same names of Roles.
func TestObjectsOfAnotherInfraAreNotAdopted(t *testing.T) {
	s := newSite(t)
	s.Setup() // installs the CRDs, which would otherwise differ in the comparison below
	s.Expect(0, "teardown demo -n $NS --yes")
	s.Infra = strings.Replace(s.Infra, "metadata: {name: demo,", "metadata: {name: demo-x,", 1)
	other := fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: x, namespace: %s-demo}
spec:
  networkConfig: {cidr: 198.51.100.0/24, gateway: 198.51.100.1, networkAttachmentDefinition: vlan200}
  infraComponents: {dns: {serverIP: 198.51.100.3}}
`, s.Namespace)
	role := fmt.Sprintf("Role %[1]s/oooi-%[1]s-demo-x-dns", s.Namespace)
	s.Apply(other)
	t.Cleanup(func() {
		if err := s.ControlPlane.DeleteYAML(s.AfterTest(), []byte(other)); err != nil {
			t.Error(err)
		}
	})
	s.Apply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: oooi-%[1]s-demo-x-dns, namespace: %[1]s, labels: {app.kubernetes.io/managed-by: oooi}, annotations: {hostedcluster.densityops.com/infra: %[1]s-demo/x}}
`, s.Namespace))
	refused := fmt.Sprintf("error: %s exists and belongs to Infra or ProxyServer %[2]s-demo/x: rename the Infra, because both names and namespaces give the same object name; if %[2]s-demo/x no longer exists, delete the object\nerror: nothing was applied", role, s.Namespace)
	s.Refused(refused)
	s.Refused(refused, "--adopt", "--force-conflicts")
}
