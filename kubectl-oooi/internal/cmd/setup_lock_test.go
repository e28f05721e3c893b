package cmd

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// TestConcurrentSetups checks that the second setup waits for the first.
func TestConcurrentSetups(t *testing.T) {
	s := newSite(t)
	type result struct {
		stderr string
		code   int
	}
	results := make(chan result)
	for _, image := range []string{"registry.example.com/oooi:1", "registry.example.com/oooi:2"} {
		go func() {
			_, stderr, code := s.Run("setup", "-f", "FILE", "--wait=false", "--image", image)
			results <- result{stderr, code}
		}()
	}
	waited := 0
	for range 2 {
		r := <-results
		if r.code != 0 {
			t.Errorf("setup exited with %d, stderr %s", r.code, r.stderr)
		}
		waited += strings.Count(r.stderr, "waiting for another setup by process ")
	}
	if waited != 1 {
		t.Errorf("%d setups waited for another one, want 1", waited)
	}
	images := s.Images()
	if images["coredns"] != images["coredhcp"] || images["coredns"] != images["xdsd"] {
		t.Errorf("the Infra has images of both setups: %s", images)
	}
}

// storeRecordOfAnotherHost stores a pending record of a process on another host, which this process cannot check.
func (s *testSite) storeRecordOfAnotherHost() {
	s.Helper()
	record := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: render.SystemNamespace, Name: "oooi.v1." + s.Namespace + ".demo.v9",
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelInfra: "demo", v1alpha1.GroupName + "/status": setup.StatusPending,
			},
			Annotations: map[string]string{v1alpha1.GroupName + "/holder": "setup by process 1 on elsewhere", v1alpha1.GroupName + "/renewed": time.Now().UTC().Format(time.RFC3339)},
		},
		Type: v1alpha1.GroupName + "/setup.v1", Data: s.RecordData(`{"objects": []}`),
	}
	s.Must(s.Client.Create(s.AfterTest(), record))
}

// waitsForAnotherHost is what setup and teardown print while the process of storeRecordOfAnotherHost may run.
const waitsForAnotherHost = "waiting for another setup by process 1 on elsewhere to finish"

// expectNoLock expects that no record is pending.
func (s *testSite) expectNoLock() {
	s.Helper()
	for _, o := range s.Records() {
		if o.Labels[v1alpha1.GroupName+"/status"] == setup.StatusPending {
			s.Errorf("Secret %s is pending", o.Name)
		}
	}
}

// TestKilledSetupsLockExpires stores the record of a setup on another host, whose process setup cannot check. Setup must wait
// until the process has not renewed the record for some time.
func TestKilledSetupsLockExpires(t *testing.T) {
	s := newSite(t)
	s.Setup()
	s.storeRecordOfAnotherHost()
	s.Infra = strings.Replace(s.Infra, "203.0.113.53", "203.0.113.54", 1)
	began := time.Now()
	if stderr := s.Setup(); !strings.Contains(stderr, waitsForAnotherHost+"\n") || time.Since(began) < 10*time.Second {
		t.Errorf("setup took %s, stderr %s", time.Since(began), stderr)
	}
	s.expectNoLock()
}
