package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/test/lab"
)

func TestObjectsOfAHelmReleaseAreUnchanged(t *testing.T) {
	s := newSite(t)
	s.Setup()
	control := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-control"}}
	asHelm := []byte(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": "oooi", "meta.helm.sh/release-namespace": "oooi-system"}}}`)
	s.Must(s.Client.Patch(t.Context(), control, client.RawPatch(types.MergePatchType, asHelm), client.FieldOwner("helm")))
	t.Cleanup(func() {
		if err := s.Client.Delete(s.AfterTest(), control); err != nil {
			t.Error(err)
		}
	})
	stderr := s.Setup("--image", "registry.example.com/oooi:next")
	if !strings.Contains(stderr, "1 objects of control are managed by Helm release oooi-system/oooi and left unchanged") || !strings.Contains(stderr, "StatefulSet "+s.Namespace+"/demo-dns configured") || strings.Contains(stderr, "oooi-control configured") {
		t.Errorf("setup printed\n%s", stderr)
	}
	s.Expect(0, "teardown demo -n $NS --yes", "Deployment oooi-system/oooi-control is kept: setup did not create it\n")
}

// TestControlCleansUpBeforeItsRoleIsDeleted disables apps ingress. Control, which the test simulates, deletes its
// objects in the hosted cluster, and the reader's Secret last, with the rights of a Role that setup deletes
// afterwards.
func TestControlCleansUpBeforeItsRoleIsDeleted(t *testing.T) {
	s := newSite(t)
	without := s.Infra
	s.Infra = strings.Replace(s.Infra, "  infraComponents:", "  appsIngress: {enabled: true, hostedClusterRef: {name: demo, namespace: "+s.Namespace+"}, metallb: {loadBalancerClass: example.com/metallb}}\n  infraComponents:", 1)
	s.Setup()
	s.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: demo-apps-reader, namespace: " + s.Namespace + "}\n")
	role := &rbacv1.Role{}
	role.Namespace, role.Name = s.Namespace, "oooi-"+s.Namespace+"-demo-control"
	roleExists := func() bool {
		err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(role), role)
		if client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		return err == nil
	}
	if !roleExists() {
		t.Fatal("control has no Role")
	}
	s.Infra = without
	stderr := make(chan string)
	go func() {
		_, all, _ := s.Run("setup", "-f", "FILE", "--wait=false")
		stderr <- all
	}()
	lab.Poll(t, "setup to update the Infra", func() bool {
		infra := s.Object(v1alpha1.SchemeGroupVersion.WithKind("Infra"), "demo")
		enabled, _, _ := unstructured.NestedBool(infra.Object, "spec", "appsIngress", "enabled")
		return !enabled
	})
	time.Sleep(time.Second) // enough for setup to delete the Role if it did not wait
	if !roleExists() {
		t.Error("setup deleted the Role before control cleaned up")
	}
	s.Must(s.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-apps-reader"}}))
	if stderr := <-stderr; !strings.Contains(stderr, "Role "+s.Namespace+"/"+role.Name+" deleted") || roleExists() {
		t.Errorf("the Role was not deleted; stderr %s", stderr)
	}
}

func TestConflictsAreReported(t *testing.T) {
	s := newSite(t)
	s.Setup()
	// Another manager changes a field that setup sets.
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: s.Namespace, Name: "demo-dns"}
	s.Must(s.Client.Get(t.Context(), key, service))
	service.Spec.Ports[0].TargetPort = intstr.FromInt32(5353)
	s.Must(s.Client.Update(t.Context(), service, client.FieldOwner("another-manager")))
	before := s.Everything()
	s.Expect(1, "setup -f FILE --wait=false", `"another-manager"`, "targetPort", "--force-conflicts", "nothing was applied")
	s.Unchanged(before)
	s.Expect(0, "setup -f FILE --wait=false --force-conflicts", "Service $NS/demo-dns configured")
}

func TestEarlierOperatorIsRefused(t *testing.T) {
	s := newSite(t)
	labels := map[string]string{"app": "dns"}
	old := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-dns"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "dns", Image: "example.com/dns:1"}}},
		}},
	}
	s.Must(s.Client.Create(t.Context(), old))
	s.Expect(1, "setup -f FILE --wait=false", "objects of the earlier operator may use addresses of this VLAN: Deployment $NS/demo-dns;")
	if sets := slices.DeleteFunc(s.Everything(), func(o string) bool { return !strings.Contains(o, "StatefulSet") }); len(sets) > 0 {
		t.Errorf("setup created %s", sets)
	}
}

// TestUserOfNamespaces covers a user who may read the namespaces of a site and no others.
func TestUserOfNamespaces(t *testing.T) {
	s := newSite(t)
	s.As("narrow")
	const role = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: %[1]s}
rules:
- {apiGroups: ["*"], resources: [%[2]s], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: narrow}]
---
`
	s.Apply(fmt.Sprintf(role, render.SystemNamespace, "secrets"))
	s.Apply(fmt.Sprintf(role, s.Namespace, "infras, proxyservers, hostedclusters, network-attachment-definitions"))
	for _, tc := range []struct{ controlPlane, want string }{
		{"routes", "listing Services in namespace " + s.Namespace + "-demo: services is forbidden"},
		{"routes, services", "reading "}, // all that setup requires for a plan
	} {
		s.Apply(fmt.Sprintf(role, s.Namespace+"-demo", tc.controlPlane))
		s.Expect(1, "setup -f FILE --wait=false", "error: "+tc.want)
	}
}

func TestInfraBeforeItsHostedCluster(t *testing.T) {
	s := newSite(t)
	s.Infra = strings.ReplaceAll(s.Infra, "hostedClusterRef: {name: demo,", "hostedClusterRef: {name: later,")
	s.Infra = strings.ReplaceAll(s.Infra, "dns: {serverIP", "dns: {clusterName: later, baseDomain: example.com, serverIP")
	out, stderr, code := s.Run("setup", "-f", "FILE", "--wait=false")
	if code != 0 || !strings.Contains(stderr, "Warning: the hosted control plane does not exist yet") || !strings.Contains(stderr, "ClusterRole oooi-"+s.Namespace+"-demo-dns created") {
		t.Errorf("setup exited with %d, stderr %s", code, stderr)
	}
	if !strings.Contains(out, "loadBalancer: {hostname: api.later.example.com}") {
		t.Errorf("setup printed %s", out)
	}
	// The HostedCluster appears, and setup narrows the rights.
	s.Apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + s.Namespace + "-later}\n")
	s.Expect(0, "setup -f FILE --wait=false", "ClusterRole oooi-$NS-demo-dns deleted", "Role $NS-later/oooi-$NS-demo-dns created")
}
