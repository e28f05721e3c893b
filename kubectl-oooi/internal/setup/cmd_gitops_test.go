package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// printed returns the objects that --dry-run=client prints for the site.
func (s *site) printed() []*unstructured.Unstructured {
	s.Helper()
	infra := s.Infra
	defer func() { s.Infra = infra }()
	s.Infra += fmt.Sprintf(`---
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: demo, namespace: %[1]s}
spec: {infraID: demo-x7k2p, dns: {baseDomain: %[1]s.example.com}, platform: {type: KubeVirt}}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: %[1]s}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "%[2]s"}'}
`, s.Namespace, s.Bridge)
	out, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=client")
	if code != 0 {
		s.Fatal(stderr)
	}
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(out), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); err != nil {
			return all
		}
		all = append(all, u)
	}
}

// sync applies objects as a GitOps tool does: CRDs and namespaces first, and with retries.
func (s *site) sync(objects []*unstructured.Unstructured) {
	s.Helper()
	first := func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "CustomResourceDefinition" || u.GetKind() == "Namespace"
	}
	for _, stage := range []bool{true, false} {
		for _, u := range objects {
			if first(u) != stage {
				continue
			}
			for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
				err := s.Client.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner("argocd-controller"), client.ForceOwnership)
				if err == nil {
					break
				}
				if time.Now().After(end) {
					s.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
				}
			}
		}
	}
}

func TestTeardownDeletesObjectsOfAGitOpsTool(t *testing.T) {
	s := newSite(t)
	objects := s.printed()
	s.sync(objects)
	before := s.Everything()
	s.sync(objects)
	s.Unchanged(before)
	out, _, _ := s.Run("teardown", "demo", "-n", s.Namespace, "--dry-run=client")
	for _, u := range objects {
		ours := strings.HasPrefix(u.GetNamespace(), s.Namespace) && u.GetKind() != "Infra"
		if ours && !strings.Contains(out, fmt.Sprintf("%s %s/%s\n", u.GetKind(), u.GetNamespace(), u.GetName())) {
			t.Fatalf("teardown would not delete %s %s/%s:\n%s", u.GetKind(), u.GetNamespace(), u.GetName(), out)
		}
	}

	// Setup takes over the objects without conflicts, and changes no pod.
	stderr := s.Setup()
	if strings.Contains(stderr, "created") || strings.Contains(stderr, "removed") {
		t.Errorf("setup printed\n%s", stderr)
	}
	templates := func() (all []string) {
		for _, o := range s.Everything() {
			if strings.HasPrefix(o, "StatefulSet ") {
				all = append(all, o) // contains the generation
			}
		}
		return all
	}
	if got := templates(); !slices.Equal(got, slices.DeleteFunc(slices.Clone(before), func(o string) bool { return !strings.HasPrefix(o, "StatefulSet ") })) {
		t.Errorf("setup changed StatefulSets: %s", got)
	}

	if err := s.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-oooi-inventory"}}); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 {
		t.Fatalf("teardown exited with %d, stderr %s", code, stderr)
	}
	for _, o := range s.Everything() {
		if strings.Contains(o, "demo-") && strings.Contains(o, s.Namespace) && !strings.HasPrefix(o, "Namespace ") {
			t.Errorf("teardown left %s", o)
		}
	}
}

func TestWorkloadsWithoutTheirInfraAreReported(t *testing.T) {
	s := newSite(t)
	s.sync(s.printed())
	infra := &unstructured.Unstructured{}
	infra.SetGroupVersionKind(read.InfraKind)
	infra.SetNamespace(s.Namespace)
	infra.SetName("demo")
	if err := s.Client.Delete(t.Context(), infra); err != nil {
		t.Fatal(err)
	}
	warning := fmt.Sprintf("Warning: Infra or ProxyServer %[1]s/demo does not exist, but its StatefulSets serve the VLAN as last configured: StatefulSet %[1]s/demo-dhcp, StatefulSet %[1]s/demo-dns, StatefulSet %[1]s/demo-proxy; create it again, or run 'kubectl oooi teardown demo -n %[1]s' to delete them\n", s.Namespace)
	for _, tc := range []struct {
		line []string
		code int
	}{
		{[]string{"doctor", "-n", s.Namespace}, 2}, {[]string{"doctor", "-n", s.Namespace, "--fail-on", "never"}, 0}, {[]string{"doctor", "demo", "-n", s.Namespace}, 1},
		{[]string{"status", "-n", s.Namespace}, 0}, {[]string{"status", "demo", "-n", s.Namespace}, 1},
	} {
		if _, stderr, code := s.Run(tc.line...); code != tc.code || !strings.Contains(stderr, warning) {
			t.Errorf("%q exited with %d, want %d, stderr %s", tc.line, code, tc.code, stderr)
		}
	}
	if _, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 || !strings.Contains(stderr, "StatefulSet "+s.Namespace+"/demo-dns deleted") {
		t.Errorf("teardown exited with %d, stderr %s", code, stderr)
	}
	if _, stderr, code := s.Run("doctor", "-n", s.Namespace); code != 1 || !strings.Contains(stderr, "no Infra or standalone ProxyServer found in namespace") || strings.Contains(stderr, "demo") {
		t.Errorf("after teardown doctor exited with %d, stderr %s", code, stderr)
	}
}

// TestObjectsStayWithoutTheInfra deletes an Infra without teardown. The garbage collector, which runs, must delete nothing:
// what setup deployed serves the VLAN.
func TestObjectsStayWithoutTheInfra(t *testing.T) {
	s := newSite(t)
	s.Setup()
	without := func(list []string) []string {
		return slices.DeleteFunc(list, func(o string) bool { return strings.HasPrefix(o, "Infra ") })
	}
	before := without(s.Everything())
	// The garbage collector deletes an object with an owner reference to the Infra, but no other.
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "owned"}}
	infra := &unstructured.Unstructured{}
	infra.SetGroupVersionKind(read.InfraKind)
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "demo"}, infra); err != nil {
		t.Fatal(err)
	}
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: infra.GetAPIVersion(), Kind: infra.GetKind(), Name: infra.GetName(), UID: infra.GetUID()}}
	if err := s.Client.Create(t.Context(), owned); err != nil {
		t.Fatal(err)
	}
	if err := s.Client.Delete(t.Context(), infra, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(owned), owned); apierrors.IsNotFound(err) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the garbage collector does not run")
		}
	}
	if after := without(s.Everything()); !slices.Equal(after, before) {
		t.Errorf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	vlan := &unstructured.Unstructured{}
	vlan.SetGroupVersionKind(read.AttachmentKind)
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "vlan100"}, vlan); err != nil {
		t.Error(err)
	}
	if _, stderr, code := s.Run("status", "-n", s.Namespace); !strings.Contains(stderr, "Infra or ProxyServer "+s.Namespace+"/demo does not exist, but its StatefulSets serve the VLAN") {
		t.Errorf("status exited with %d, stderr %s", code, stderr)
	}
	if _, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 || !strings.Contains(stderr, "Role "+s.Namespace+"-demo/") {
		t.Errorf("teardown of the remaining objects exited with %d, stderr %s", code, stderr)
	}
	err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "demo-oooi-inventory"}, &corev1.ConfigMap{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the inventory still exists: %v", err)
	}
}
