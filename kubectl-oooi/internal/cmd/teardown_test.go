package cmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
	"github.com/densityops/oooi/test/lab"
)

// exists reports whether an object exists.
func (s *testSite) exists(kind, name string) bool {
	s.Helper()
	e := inventory.Entry{APIVersion: map[string]string{"Infra": "hostedcluster.densityops.com/v1alpha1", "StatefulSet": "apps/v1"}[kind], Kind: kind, Namespace: s.Namespace, Name: name}
	err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, e.Object())
	if client.IgnoreNotFound(err) != nil {
		s.Error(err)
	}
	return err == nil
}

// TestTeardownWaitsForASetup stores the record of a killed setup on another host. Teardown must delete nothing until it is certain
// that the setup does not run.
func TestTeardownWaitsForASetup(t *testing.T) {
	s := newSite(t)
	s.Setup()
	s.storeRecordOfAnotherHost()
	before := s.Everything()
	for _, flag := range []string{"--dry-run=client", "--dry-run=server"} {
		if out, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, flag); code != 0 || !strings.Contains(out, "/demo-dns\n") || strings.Contains(stderr, "waiting") {
			t.Errorf("teardown %s exited with %d, stdout %s, stderr %s", flag, code, out, stderr)
		}
	}
	_, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes", "--timeout", "2s")
	if want := "error: gave up after --timeout 2s: " + waitsForAnotherHost + ": timed out\n"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("teardown --timeout 2s exited with %d, stderr %q, want %q", code, stderr, want)
	}
	s.Unchanged(before)
	began := time.Now()
	_, stderr, code = s.Run("teardown", "demo", "-n", s.Namespace, "--yes")
	if code != 0 || !strings.Contains(stderr, waitsForAnotherHost+"\n") || time.Since(began) < 10*time.Second || s.exists("Infra", "demo") {
		t.Errorf("teardown exited with %d after %s, stderr %s", code, time.Since(began), stderr)
	}
	s.expectNoLock()
	// A teardown that was killed after it had deleted the Infra's objects leaves its record.
	s.WaitForSystemNamespace()
	s.storeRecordOfAnotherHost()
	if _, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 || len(s.Records()) > 0 {
		t.Errorf("a teardown after one that was killed exited with %d, %d records remain, stderr %s", code, len(s.Records()), stderr)
	}
}

// TestSetupWaitsForATeardown checks that a setup waits for a teardown, which also deletes the CRDs. The teardown waits
// until control, which the test simulates, has deleted the Secret of apps ingress.
func TestSetupWaitsForATeardown(t *testing.T) {
	s := newSite(t)
	s.Infra = strings.Replace(s.Infra, "  infraComponents:", "  appsIngress: {enabled: true, hostedClusterRef: {name: demo, namespace: "+s.Namespace+"}, metallb: {loadBalancerClass: example.com/metallb}}\n  infraComponents:", 1)
	s.Setup()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-apps-reader"}}
	s.Must(s.Client.Create(t.Context(), secret))
	type result struct {
		stderr string
		code   int
	}
	run := func(args ...string) chan result {
		done := make(chan result, 1)
		go func() {
			_, stderr, code := s.Run(args...)
			done <- result{stderr, code}
		}()
		return done
	}
	teardown := run("teardown", "demo", "-n", s.Namespace, "--yes", "--crds")
	lab.Poll(s, "teardown has deleted the Infra", func() bool { return !s.exists("Infra", "demo") })
	waiting := run("setup", "-f", "FILE", "--wait=false")
	time.Sleep(4 * time.Second) // enough for setup to create the Infra if it did not wait
	if s.exists("Infra", "demo") {
		t.Error("setup did not wait for teardown")
	}
	s.Must(s.Client.Delete(t.Context(), secret))
	if r := <-teardown; r.code != 0 {
		t.Errorf("teardown exited with %d, stderr %s", r.code, r.stderr)
	}
	if r := <-waiting; r.code != 0 || !strings.Contains(r.stderr, "waiting for another teardown by process ") || !s.exists("StatefulSet", "demo-proxy") {
		t.Errorf("setup exited with %d, stderr %s", r.code, r.stderr)
	}
	s.expectNoLock()
}

// TestTeardownWhileSetupWaitsForComponents deletes an Infra whose setup has applied everything and waits until it works.
func TestTeardownWhileSetupWaitsForComponents(t *testing.T) {
	s := newSite(t)
	stderr := make(chan string, 1)
	go func() {
		_, all, code := s.Run("setup", "-f", "FILE")
		stderr <- fmt.Sprint(all, "exit ", code)
	}()
	lab.Poll(s, "the pod that checks the addresses exists", func() bool {
		select {
		case all := <-stderr:
			t.Fatalf("setup ended: %s", all)
		default:
		}
		var pods corev1.PodList
		s.Must(s.Client.List(t.Context(), &pods, client.InNamespace(s.Namespace), client.HasLabels{batchv1.JobNameLabel}))
		for i := range pods.Items { // no kubelet runs it
			patch := client.RawPatch(types.MergePatchType, []byte(`{"status": {"phase": "Succeeded"}}`))
			s.Must(s.Client.Status().Patch(t.Context(), &pods.Items[i], patch))
		}
		return len(pods.Items) > 0
	})
	lab.Poll(s, "setup has applied the Infra", func() bool { return s.exists("StatefulSet", "demo-proxy") })
	s.Expect(0, "teardown demo -n $NS --yes")
	if all, want := <-stderr, "error: Infra "+s.Namespace+"/demo was deleted before setup finished; run setup again to deploy it\nexit 1"; !strings.HasSuffix(all, want) {
		t.Errorf("setup printed %s, want %s", all, want)
	}
	s.expectNoLock()
}

// TestTeardownWithoutALock runs teardown as a user who may not use Secrets.
func TestTeardownWithoutALock(t *testing.T) {
	s := newSite(t)
	s.Setup()
	s.Grant("no-secrets-"+s.Namespace, `[{apiGroups: [""], resources: [namespaces, configmaps, services, serviceaccounts, pods], verbs: ["*"]}, {apiGroups: [coordination.k8s.io, apps, networking.k8s.io, policy, rbac.authorization.k8s.io, hostedcluster.densityops.com, k8s.cni.cncf.io, apiextensions.k8s.io, operator.openshift.io], resources: ["*"], verbs: ["*"]}]`)
	s.As("no-secrets-" + s.Namespace)
	_, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes")
	if code != 0 || s.exists("StatefulSet", "demo-dns") {
		t.Errorf("teardown exited with %d, stderr %s", code, stderr)
	}
}

// TestTeardownEndsWhenItsLockIsLost has another process take the record over, and delete it and store another one.
func TestTeardownEndsWhenItsLockIsLost(t *testing.T) {
	s := newSite(t)
	for name, lose := range map[string]func(){
		"taken over": func() {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"annotations": {%q: null}}}`, v1alpha1.GroupName+"/holder"))
			s.Must(s.Client.Patch(s.AfterTest(), &s.Records()[0], patch))
		},
		"replaced": func() {
			s.DeleteRecords()
			s.storeRecordOfAnotherHost()
		},
	} {
		teardown := &setup.Teardown{Client: s.Client, Out: io.Discard, Infra: types.NamespacedName{Namespace: s.Namespace, Name: "demo"}}
		err := teardown.WithLock(t.Context(), func(ctx context.Context) error {
			lose()
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
			}
			return ctx.Err()
		})
		if err == nil || err.Error() != "another setup or teardown of this Infra has taken over; run teardown again" {
			t.Errorf("%s: teardown ended with %v", name, err)
		}
		s.DeleteRecords()
	}
}

func TestOnlyConfirmedObjectsAreDeleted(t *testing.T) {
	one := inventory.Entry{Kind: "Service", Namespace: "clusters", Name: "demo-dns", UID: "1"}
	another, lease := one, inventory.Entry{Kind: "Lease", Namespace: "clusters", Name: "clusters.demo.192.0.2.10", UID: "3"}
	another.UID = "2"
	for _, tc := range []struct {
		name            string
		list, confirmed []inventory.Entry
		refused         bool
	}{
		{"unchanged", []inventory.Entry{one}, []inventory.Entry{one}, false},
		{"one was deleted", nil, []inventory.Entry{one}, false},
		{"one was created", []inventory.Entry{one}, nil, true},
		{"one was created again", []inventory.Entry{another}, []inventory.Entry{one}, true},
		{"a DHCP lease was created", []inventory.Entry{lease}, nil, false},
	} {
		if err := checkConfirmed(tc.list, tc.confirmed); (err != nil) != tc.refused {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
