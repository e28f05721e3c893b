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

// TestOtherForwardersAreKept adds an entry of an administrator to dns.operator/default, whose list of servers is
// atomic.
func TestOtherForwardersAreKept(t *testing.T) {
	s := newSite(t)
	s.Apply(`
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
		s.Must(s.Client.Get(t.Context(), client.ObjectKey{Name: "default"}, u))
		return u
	}
	before := get()
	t.Cleanup(func() {
		if err := s.Client.Delete(s.AfterTest(), before); err != nil {
			t.Error(err)
		}
	})
	s.Expect(0, "setup -f FILE --wait=false --cluster-dns=patch", "the cluster's DNS forwards demo.$NS.example.com")
	servers, _, err := unstructured.NestedSlice(get().Object, "spec", "servers")
	if err != nil || len(servers) != 2 {
		t.Fatalf("%v, %v", servers, err)
	}
	serversBefore, _, _ := unstructured.NestedSlice(before.Object, "spec", "servers")
	if !reflect.DeepEqual(servers[0], serversBefore[0]) {
		t.Errorf("the administrator's server is %v, want %v", servers[0], serversBefore[0])
	}
	version := get().GetResourceVersion()
	if stderr := s.Setup("--cluster-dns=patch"); stderr != "" || get().GetResourceVersion() != version {
		t.Errorf("a second setup changed the cluster DNS: %s", stderr)
	}
	s.Expect(0, "teardown demo -n $NS --yes", "no longer forwards to oooi")
	if after := get(); !reflect.DeepEqual(after.Object["spec"], before.Object["spec"]) {
		t.Errorf("the spec was %v and is %v after teardown", before.Object["spec"], after.Object["spec"])
	}
}

func TestCorefileIsPatchedOnlyOnRequest(t *testing.T) {
	s := newSite(t)
	const reload = "    reload # as kubeadm writes it\n"
	const theirs = ".:53 {\n    errors\n    forward . /etc/resolv.conf\n" + reload + "}\n"
	const restart = "kubectl -n kube-system rollout restart deployment coredns"
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, Data: map[string]string{"Corefile": theirs}}
	s.CreateForTest(m)
	corefile := func() string {
		t.Helper()
		s.Must(s.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m))
		return m.Data["Corefile"]
	}
	out, _, _ := s.Run("setup", "-f", "FILE", "--wait=false")
	if !strings.Contains(out, "forward demo."+s.Namespace+".example.com in its DNS to 10.") || corefile() != theirs {
		t.Errorf("%s%s", out, corefile())
	}
	if stderr := s.Setup("--cluster-dns=patch"); strings.Contains(stderr, restart) {
		t.Error(stderr)
	}
	if got := corefile(); !strings.HasPrefix(got, theirs+"# begin of oooi "+s.Namespace+"/demo\ndemo."+s.Namespace+".example.com {\n") {
		t.Error(got)
	}
	version := m.ResourceVersion
	if s.Setup("--cluster-dns=patch"); corefile() == "" || m.ResourceVersion != version {
		t.Error("a second setup changed the Corefile")
	}
	// A Corefile without the plugin reload: CoreDNS must be restarted.
	m.Data["Corefile"] = strings.Replace(theirs, reload, "", 1)
	s.Must(s.Client.Update(t.Context(), m))
	s.Expect(0, "setup -f FILE --wait=false --cluster-dns=patch", restart)
	// Another server block for the domain, as of another Infra of the hosted cluster: with two, CoreDNS would not start.
	corefile()
	other := theirs + "demo." + s.Namespace + ".example.com:53 {\n    forward . 10.96.0.99\n}\n"
	m.Data["Corefile"] = other
	s.Must(s.Client.Update(t.Context(), m))
	for range 2 {
		if stderr := s.Setup("--cluster-dns=patch"); !strings.Contains(stderr, "has another server for demo."+s.Namespace) || corefile() != other {
			t.Errorf("%s%s", stderr, corefile())
		}
	}
	m.Data["Corefile"] = strings.Replace(theirs, reload, "", 1)
	s.Must(s.Client.Update(t.Context(), m))
	s.Setup("--cluster-dns=patch")
	if _, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 || !strings.Contains(stderr, restart) || corefile() != strings.Replace(theirs, reload, "", 1) {
		t.Errorf("teardown exited with %d, stderr %s; the Corefile is\n%s", code, stderr, corefile())
	}
}

func TestClusterDNSIsRefusedAsUpstream(t *testing.T) {
	s := newSite(t)
	dns := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53}}},
	}
	s.CreateForTest(dns)
	s.Infra = strings.ReplaceAll(s.Infra, "203.0.113.53", dns.Spec.ClusterIP)
	s.Refused("is the cluster's own DNS (Service kube-system/kube-dns)")
}
