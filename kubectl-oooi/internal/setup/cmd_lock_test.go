package setup_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTwoSetupsAtOnce: the second waits for the first.
func TestTwoSetupsAtOnce(t *testing.T) {
	s := newSite(t)
	type result struct {
		said string
		code int
	}
	results := make(chan result)
	for _, image := range []string{"registry.example.com/oooi:1", "registry.example.com/oooi:2"} {
		go func() {
			_, said, code := s.Run("setup", "-f", "FILE", "--wait=false", "--image", image)
			results <- result{said, code}
		}()
	}
	waited := 0
	for range 2 {
		r := <-results
		if r.code != 0 {
			t.Errorf("setup ended with %d: %s", r.code, r.said)
		}
		waited += strings.Count(r.said, "waiting for another setup of the Infra to finish: process ")
	}
	if waited != 1 {
		t.Errorf("setups said %d times that they wait for another", waited)
	}
	images := s.Images()
	if images["coredns"] != images["coredhcp"] || images["coredns"] != images["xdsd"] {
		t.Errorf("the Infra has images of both: %s", images)
	}
}

// TestTheLockOfASetupThatWasKilledLapses on whatever machine that was.
func TestTheLockOfASetupThatWasKilledLapses(t *testing.T) {
	s := newSite(t)
	s.Apply(fmt.Sprintf("apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: demo-oooi-setup, namespace: %s}\nspec: {holderIdentity: elsewhere 1 abcde}\n", s.Namespace))
	began := time.Now()
	if said := s.Setup(); !strings.Contains(said, "waiting for another setup of the Infra to finish: process 1 on elsewhere\n") || time.Since(began) < 10*time.Second {
		t.Errorf("after %s setup has said %s", time.Since(began), said)
	}
	err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "demo-oooi-setup"}, &coordinationv1.Lease{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the lock is left: %v", err)
	}
}
