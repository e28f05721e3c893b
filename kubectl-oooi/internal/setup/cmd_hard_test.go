package cmd

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
)

func TestTeardownLeavesNothing(t *testing.T) {
	s := newSite(t)
	before := slices.DeleteFunc(s.everything(), func(o string) bool { // of the test before
		return strings.Contains(o, "oooi-") || strings.HasPrefix(o, "CustomResourceDefinition") && strings.Contains(o, "hostedcluster.densityops.com")
	})
	s.setup()
	out, said, code := s.run("teardown", "demo", "-n", s.namespace, "--dry-run")
	if code != 0 || !strings.HasPrefix(out, "Infra "+s.namespace+"/demo\n") || !strings.Contains(out, "StatefulSet "+s.namespace+"/demo-dns\n") {
		t.Errorf("%d: %s%s", code, out, said)
	}
	if _, said, code := s.run("teardown", "demo", "-n", s.namespace); code != 1 || !strings.Contains(said, "--yes") {
		t.Errorf("%d without a question: %s", code, said)
	}
	if _, said, code := s.run("teardown", "demo", "-n", s.namespace, "--yes", "--timeout", "1ns"); code != 1 || !strings.Contains(said, "error: not done within --timeout 1ns: ") {
		t.Errorf("%d in no time: %s", code, said)
	}
	if _, said, code := s.run("teardown", "demo", "-n", s.namespace, "--yes", "--crds"); code != 0 {
		t.Fatalf("%d: %s", code, said)
	}
	s.unchanged(before)
	if _, said, code := s.run("teardown", "demo", "-n", s.namespace, "--yes"); code != 1 || !strings.Contains(said, "there is no Infra "+s.namespace+"/demo") {
		t.Errorf("%d the second time: %s", code, said)
	}
}

func TestLeasesOfAnotherInfraStay(t *testing.T) {
	s := newSite(t)
	s.setup()
	lease := func(infra string) string {
		return fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %[1]s.%[2]s.192.0.2.10, namespace: %[1]s, labels: {leasedb.densityops.com/pool: %[1]s.%[2]s}}
spec: {holderIdentity: %[1]s/vm/default, renewTime: "2026-01-02T03:04:05.000000Z"}
`, s.namespace, infra)
	}
	s.apply(lease("demo") + "---" + lease("demo.east"))
	out, said, code := s.run("teardown", "demo", "-n", s.namespace, "--dry-run", "--leases")
	if code != 0 || !strings.Contains(out, "Lease "+s.namespace+"/"+s.namespace+".demo.192.0.2.10\n") || strings.Contains(out, "demo.east") {
		t.Errorf("teardown ended with %d, said %s, and would take\n%s", code, said, out)
	}
}

func TestWhatHelmHasInstalledIsLeftToIt(t *testing.T) {
	s := newSite(t)
	s.setup()
	control := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-control"}}
	asHelm := []byte(`{"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": "oooi", "meta.helm.sh/release-namespace": "oooi-system"}}}`)
	if err := s.client.Patch(t.Context(), control, client.RawPatch(types.MergePatchType, asHelm), client.FieldOwner("helm")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.client.Delete(s.cleanup(), control); err != nil {
			t.Error(err)
		}
	})
	said := s.setup("--image", "registry.example.com/oooi:next")
	if !strings.Contains(said, "left to its release oooi-system/oooi (objects: 1)") || !strings.Contains(said, "StatefulSet "+s.namespace+"/demo-dns configured") || strings.Contains(said, "oooi-control configured") {
		t.Errorf("setup said\n%s", said)
	}
	if _, said, code := s.run("teardown", "demo", "-n", s.namespace, "--yes"); code != 0 || strings.Contains(said, "Deployment oooi-system/oooi-control") {
		t.Errorf("teardown ended with %d and said\n%s", code, said)
	}
}

func TestTeardownLeavesWhatIsNotOurs(t *testing.T) {
	s := newSite(t)
	s.setup()
	// Somebody has made one of our objects anew, under its name.
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo-dns"}}
	if err := s.client.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	theirs.Data = map[string]string{"mine": "yes"}
	theirs.ResourceVersion = ""
	if err := s.client.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if _, said, code := s.run("teardown", "demo", "-n", s.namespace, "--yes", "--crds"); code != 0 {
		t.Fatalf("%d: %s", code, said)
	}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Error(err)
	}
}

// TestControlCleansUpBeforeItsRightsGo disables applications: control removes what it has made in
// the hosted cluster, and the reader's Secret last, by rights that setup takes back.
func TestControlCleansUpBeforeItsRightsGo(t *testing.T) {
	s := newSite(t)
	without := s.infra
	s.infra = strings.Replace(s.infra, "  infraComponents:", "  appsIngress: {enabled: true, hostedClusterRef: {name: demo, namespace: "+s.namespace+"}, metallb: {loadBalancerClass: example.com/metallb}}\n  infraComponents:", 1)
	s.setup()
	s.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: demo-apps-reader, namespace: " + s.namespace + "}\n")
	role := &rbacv1.Role{}
	role.Namespace, role.Name = s.namespace, "oooi-"+s.namespace+"-demo-control"
	there := func() bool {
		err := s.client.Get(t.Context(), client.ObjectKeyFromObject(role), role)
		if client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		return err == nil
	}
	if !there() {
		t.Fatal("control has no Role")
	}
	s.infra = without
	said := make(chan string)
	go func() {
		_, all, _ := s.run("setup", "-f", "FILE", "--wait=false")
		said <- all
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // until the Infra says so
		infra := &unstructured.Unstructured{}
		infra.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Infra"))
		if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "demo"}, infra); err != nil {
			t.Fatal(err)
		}
		if enabled, _, _ := unstructured.NestedBool(infra.Object, "spec", "appsIngress", "enabled"); !enabled {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the Infra is as it was")
		}
	}
	time.Sleep(time.Second) // what setup would do at once, it has done
	if !there() {
		t.Error("the Role is gone, and control cannot clean up")
	}
	if err := s.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo-apps-reader"}}); err != nil {
		t.Fatal(err)
	}
	if said := <-said; !strings.Contains(said, "Role "+s.namespace+"/"+role.Name+" removed") || there() {
		t.Errorf("the Role is left; it said %s", said)
	}
}

func TestConflictsAreReported(t *testing.T) {
	s := newSite(t)
	s.setup()
	// Somebody sets a field that setup sets.
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: s.namespace, Name: "demo-dns"}
	if err := s.client.Get(t.Context(), key, service); err != nil {
		t.Fatal(err)
	}
	service.Spec.Ports[0].TargetPort = intstr.FromInt32(5353)
	if err := s.client.Update(t.Context(), service, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	before := s.everything()
	_, said, code := s.run("setup", "-f", "FILE", "--wait=false")
	for _, want := range []string{`"somebody"`, "targetPort", "--force-conflicts", "nothing was applied"} {
		if code != 1 || !strings.Contains(said, want) {
			t.Errorf("%d, and no %s in %s", code, want, said)
		}
	}
	s.unchanged(before)
	if said := s.setup("--force-conflicts"); !strings.Contains(said, "Service "+s.namespace+"/demo-dns configured") {
		t.Error(said)
	}
}

func TestTheOldOperatorIsInTheWay(t *testing.T) {
	s := newSite(t)
	labels := map[string]string{"app": "dns"}
	old := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo-dns"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "dns", Image: "example.com/dns:1"}}},
		}},
	}
	if err := s.client.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	_, said, code := s.run("setup", "-f", "FILE", "--wait=false")
	if code != 1 || !strings.Contains(said, "there is what the old operator makes, which may hold an address of this VLAN: Deployment "+s.namespace+"/demo-dns;") {
		t.Errorf("%d: %s", code, said)
	}
	if left := slices.DeleteFunc(s.everything(), func(o string) bool { return !strings.Contains(o, "StatefulSet") }); len(left) > 0 {
		t.Errorf("it has made %s", left)
	}
}

func TestAUserWithoutRights(t *testing.T) {
	s := newSite(t)
	kubeconfig, err := s.cp.UserKubeconfig("nobody")
	if err != nil {
		t.Fatal(err)
	}
	s.kubeconfig = kubeconfig
	before := s.everything()
	_, said, code := s.run("setup", "-f", "FILE", "--wait=false")
	if code != 1 || !strings.Contains(said, `User "nobody" cannot`) {
		t.Errorf("%d: %s", code, said)
	}
	s.unchanged(before)
}

func TestTheInfraMayComeFirst(t *testing.T) {
	s := newSite(t)
	s.infra = strings.ReplaceAll(s.infra, "hostedClusterRef: {name: demo,", "hostedClusterRef: {name: later,")
	s.infra = strings.ReplaceAll(s.infra, "dns: {serverIP", "dns: {clusterName: later, baseDomain: example.com, serverIP")
	out, said, code := s.run("setup", "-f", "FILE", "--wait=false")
	if code != 0 || !strings.Contains(said, "Warning: the hosted control plane is not there yet") || !strings.Contains(said, "ClusterRole oooi-"+s.namespace+"-demo-dns created") {
		t.Errorf("%d: %s", code, said)
	}
	if !strings.Contains(out, "loadBalancer: {hostname: api.later.example.com}") {
		t.Errorf("it says %s", out)
	}
	// The HostedCluster appears, and setup narrows the rights.
	s.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + s.namespace + "-later}\n")
	if said := s.setup(); !strings.Contains(said, "ClusterRole oooi-"+s.namespace+"-demo-dns removed") || !strings.Contains(said, "Role "+s.namespace+"-later/oooi-"+s.namespace+"-demo-dns created") {
		t.Error(said)
	}
}
