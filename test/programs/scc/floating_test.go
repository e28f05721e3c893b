package scc

import (
	"slices"
	"strings"
	"testing"

	securityv1 "github.com/openshift/api/security/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestFloatingProxyHasMinimalConstraints checks that the pods with capabilities are admitted by the
// constraints that setup creates for them, but not by narrower ones, nor by restricted-v2.
func TestFloatingProxyHasMinimalConstraints(t *testing.T) {
	constraints := map[string]*securityv1.SecurityContextConstraints{}
	all := printed(t, constraints, "-f", "test/programs/scc/testdata/several.yaml", "--openshift=true")
	if len(constraints) != 1 {
		t.Fatalf("setup creates %d constraints, want 1", len(constraints))
	}
	for _, name := range []string{"several-proxy-192-0-2-5", "several-proxy-192-0-2-6"} {
		pod := all[name]
		c := constraints[pod.Annotations[securityv1.RequiredSCCAnnotation]]
		if c == nil {
			t.Fatalf("%s requires %q, which setup does not create", name, pod.Annotations[securityv1.RequiredSCCAnnotation])
		}
		if reasons := violations(t, c, pod); reasons != "" {
			t.Errorf("%s: %s", name, reasons)
		}
		if reasons := violations(t, constraint(t, "restricted-v2"), pod); !strings.Contains(reasons, "NET_ADMIN") {
			t.Errorf("violations of restricted-v2 by %s: %q", name, reasons)
		}
		for _, narrower := range []struct {
			name   string
			change func(*securityv1.SecurityContextConstraints)
		}{
			{"without NET_ADMIN", func(c *securityv1.SecurityContextConstraints) { c.AllowedCapabilities = []corev1.Capability{"NET_RAW"} }},
			{"without NET_RAW", func(c *securityv1.SecurityContextConstraints) {
				c.AllowedCapabilities = []corev1.Capability{"NET_ADMIN"}
			}},
			{"with a user ID of the namespace", func(c *securityv1.SecurityContextConstraints) {
				c.RunAsUser.Type = securityv1.RunAsUserStrategyMustRunAsRange
			}},
			{"without emptyDir volumes", func(c *securityv1.SecurityContextConstraints) {
				c.Volumes = []securityv1.FSType{securityv1.FSProjected}
			}},
			{"without projected volumes", func(c *securityv1.SecurityContextConstraints) {
				c.Volumes = []securityv1.FSType{securityv1.FSTypeEmptyDir}
			}},
		} {
			changed := c.DeepCopy()
			narrower.change(changed)
			if violations(t, changed, pod) == "" {
				t.Errorf("%s is admitted %s", name, narrower.name)
			}
		}
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			if added := c.SecurityContext.Capabilities.Add; (len(added) > 0) != (c.Name == "holder") || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("container %s of %s has capabilities %v", c.Name, name, c.SecurityContext.Capabilities)
			}
		}
		// Of the changes that restricted-v2 rejects, the constraints allow two capabilities and any user.
		for _, more := range changes() {
			wider := pod.DeepCopy()
			more.pod(wider)
			allowed := slices.Contains([]string{"NET_ADMIN", "NET_RAW", "root", "root in one container", "user of another namespace"}, more.name)
			if admitted := violations(t, c, wider) == ""; more.refused != "" && admitted != allowed {
				t.Errorf("%s with %s: admitted %t", name, more.name, admitted)
			}
		}
	}
}
