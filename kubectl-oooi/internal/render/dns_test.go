package render

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// TestGeneratedHosts covers a control plane with which one label has the maximum length, so that HyperShift shortens it.
func TestGeneratedHosts(t *testing.T) {
	in := &Input{ControlPlane: strings.Repeat("c", 43), Management: []string{"apps.mgmt.example.org"}}
	want := []string{"ignition-server-" + in.ControlPlane + ".apps.mgmt.example.org", "oauth-" + in.ControlPlane + ".apps.mgmt.example.org"}
	if got := in.generatedHosts(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestParentProxyHasCredentials(t *testing.T) {
	parent := &v1alpha1.ParentProxy{SecretRef: &corev1.LocalObjectReference{Name: "parent"}}
	in := &Input{Infra: &v1alpha1.Infra{}, ProxySpec: v1alpha1.ProxyServerSpec{Egress: &v1alpha1.Egress{ParentProxy: parent}}}
	if env := in.parentProxyCredentials(); len(env) != 1 || env[0].ValueFrom.SecretKeyRef.Name != "parent" {
		t.Errorf("environment %v", env)
	}
}
