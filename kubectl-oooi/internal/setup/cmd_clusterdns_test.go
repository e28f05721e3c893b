package cmd

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestOthersForwardersSurvive has an administrator's entries in OpenShift's DNS, whose list of
// servers is atomic.
func TestOthersForwardersSurvive(t *testing.T) {
	s := newSite(t)
	s.apply(`
apiVersion: operator.openshift.io/v1
kind: DNS
metadata: {name: default}
spec:
  logLevel: Debug
  servers:
  - {name: theirs, zones: [corp.example.com], forwardPlugin: {upstreams: [203.0.113.7], policy: Sequential}}
`)
	get := func() *unstructured.Unstructured {
		t.Helper()
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("operator.openshift.io/v1")
		u.SetKind("DNS")
		if err := s.client.Get(t.Context(), client.ObjectKey{Name: "default"}, u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	before := get()
	t.Cleanup(func() {
		if err := s.client.Delete(s.cleanup(), before); err != nil {
			t.Error(err)
		}
	})
	if said := s.setup("--cluster-dns=patch"); !strings.Contains(said, "the cluster's DNS forwards demo."+s.namespace+".example.com") {
		t.Error(said)
	}
	servers, _, err := unstructured.NestedSlice(get().Object, "spec", "servers")
	if err != nil || len(servers) != 2 {
		t.Fatalf("%v, %v", servers, err)
	}
	was, _, _ := unstructured.NestedSlice(before.Object, "spec", "servers")
	if !reflect.DeepEqual(servers[0], was[0]) {
		t.Errorf("theirs is %v", servers[0])
	}
	version := get().GetResourceVersion()
	if said := s.setup("--cluster-dns=patch"); said != "" || get().GetResourceVersion() != version {
		t.Errorf("the second time: %s", said)
	}
	if _, said, code := s.run("teardown", "demo", "-n", s.namespace, "--yes"); code != 0 || !strings.Contains(said, "does not forward to ours any more") {
		t.Errorf("%d: %s", code, said)
	}
	if after := get(); !reflect.DeepEqual(after.Object["spec"], before.Object["spec"]) {
		t.Errorf("it was %v and is %v", before.Object["spec"], after.Object["spec"])
	}
}

func TestTheCorefileOfKubernetesIsChangedOnRequestAlone(t *testing.T) {
	s := newSite(t)
	const reload = "    reload # as kubeadm has it\n"
	const theirs = ".:53 {\n    errors\n    forward . /etc/resolv.conf\n" + reload + "}\n"
	const restart = "kubectl -n kube-system rollout restart deployment coredns"
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, Data: map[string]string{"Corefile": theirs}}
	if err := s.client.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.client.Delete(s.cleanup(), m); err != nil {
			t.Error(err)
		}
	})
	corefile := func() string {
		t.Helper()
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			t.Fatal(err)
		}
		return m.Data["Corefile"]
	}
	out, _, _ := s.run("setup", "-f", "FILE", "--wait=false")
	if !strings.Contains(out, "its DNS has to forward demo."+s.namespace+".example.com to 10.") || corefile() != theirs {
		t.Errorf("%s%s", out, corefile())
	}
	if said := s.setup("--cluster-dns=patch"); strings.Contains(said, restart) {
		t.Error(said)
	}
	if got := corefile(); !strings.HasPrefix(got, theirs+"# begin of oooi "+s.namespace+"/demo\ndemo."+s.namespace+".example.com {\n") {
		t.Error(got)
	}
	version := m.ResourceVersion
	if s.setup("--cluster-dns=patch"); corefile() == "" || m.ResourceVersion != version {
		t.Error("the second time it is changed again")
	}
	// A CoreDNS that does not look at its Corefile again.
	m.Data["Corefile"] = strings.Replace(theirs, reload, "", 1)
	if err := s.client.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if said := s.setup("--cluster-dns=patch"); !strings.Contains(said, restart) {
		t.Error(said)
	}
	if _, said, code := s.run("teardown", "demo", "-n", s.namespace, "--yes"); code != 0 || !strings.Contains(said, restart) || corefile() != strings.Replace(theirs, reload, "", 1) {
		t.Errorf("%d: %s%s", code, said, corefile())
	}
}

func TestTheClustersDNSIsNoUpstream(t *testing.T) {
	s := newSite(t)
	dns := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53}}},
	}
	if err := s.client.Create(t.Context(), dns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.client.Delete(s.cleanup(), dns); err != nil {
			t.Error(err)
		}
	})
	s.infra = strings.ReplaceAll(s.infra, "203.0.113.53", dns.Spec.ClusterIP)
	s.refused("is the cluster's own DNS (Service kube-system/kube-dns)")
}
