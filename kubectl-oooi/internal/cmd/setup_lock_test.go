package cmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		waited += strings.Count(r.stderr, "waiting for another setup of the Infra to finish: process ")
	}
	if waited != 1 {
		t.Errorf("%d setups waited for another one, want 1", waited)
	}
	images := s.Images()
	if images["coredns"] != images["coredhcp"] || images["coredns"] != images["xdsd"] {
		t.Errorf("the Infra has images of both setups: %s", images)
	}
}

// TestLockOfAKilledSetupExpires creates the Lease of a setup on another host, whose process setup cannot check. Setup
// must wait until the Lease expires.
func TestLockOfAKilledSetupExpires(t *testing.T) {
	s := newSite(t)
	s.Apply(fmt.Sprintf("apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: demo-oooi-setup, namespace: %s}\nspec: {holderIdentity: elsewhere 1 abcde}\n", s.Namespace))
	began := time.Now()
	if stderr := s.Setup(); !strings.Contains(stderr, "waiting for another setup of the Infra to finish: process 1 on elsewhere\n") || time.Since(began) < 10*time.Second {
		t.Errorf("setup took %s, stderr %s", time.Since(began), stderr)
	}
	err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "demo-oooi-setup"}, &coordinationv1.Lease{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the Lease still exists: %v", err)
	}
}
