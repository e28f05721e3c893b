package lab

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestValidationIsReal(t *testing.T) {
	cp := management.Get(t)
	// HyperShift's CRD rejects a cluster without services.
	err := cp.ApplyYAML(t.Context(), []byte(`
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: no-services}
spec: {platform: {type: KubeVirt}, release: {image: x}, pullSecret: {name: x}, services: []}
`))
	if !apierrors.IsInvalid(err) {
		t.Errorf("got error %v, want Invalid", err)
	}
	if err == nil || !strings.HasPrefix(err.Error(), "HostedCluster default/no-services: ") {
		t.Errorf("the error does not name the object: %v", err)
	}
}

func TestModuleHashIsChecked(t *testing.T) {
	m := pinned()[0]
	m.sum = "h1:other="
	if _, err := m.dir(t.Context()); err == nil || !strings.Contains(err.Error(), "do not use it") {
		t.Errorf("got error %v", err)
	}
	m.version = "v0.0.0-20010101000000-000000000000"
	if _, err := m.dir(t.Context()); err == nil || !strings.Contains(err.Error(), m.version) {
		t.Errorf("got error %v", err)
	}
}
