package scc

import (
	"slices"
	"strings"
	"testing"

	securityv1 "github.com/openshift/api/security/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestTheProxyThatMovesItsAddressGetsNoMore has the pods with capabilities be admitted by the
// constraint that setup makes for them, by no narrower one, and by none that OpenShift gives
// everybody.
func TestTheProxyThatMovesItsAddressGetsNoMore(t *testing.T) {
	constraints := map[string]*securityv1.SecurityContextConstraints{}
	all := printed(t, constraints, "-f", "test/programs/scc/testdata/several.yaml", "--openshift=true")
	if len(constraints) != 1 {
		t.Fatalf("setup makes %d constraints", len(constraints))
	}
	for _, name := range []string{"several-proxy-192-0-2-5", "several-proxy-192-0-2-6"} {
		pod := all[name]
		c := constraints[pod.Annotations[securityv1.RequiredSCCAnnotation]]
		if c == nil {
			t.Fatalf("%s asks for %q, which is not made", name, pod.Annotations[securityv1.RequiredSCCAnnotation])
		}
		if why := refusals(t, c, pod); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		if why := refusals(t, constraint(t, "restricted-v2"), pod); !strings.Contains(why, "NET_ADMIN") {
			t.Errorf("restricted-v2 says of %s: %q", name, why)
		}
		for _, narrower := range []struct {
			name   string
			change func(*securityv1.SecurityContextConstraints)
		}{
			{"without NET_ADMIN", func(c *securityv1.SecurityContextConstraints) { c.AllowedCapabilities = []corev1.Capability{"NET_RAW"} }},
			{"without NET_RAW", func(c *securityv1.SecurityContextConstraints) {
				c.AllowedCapabilities = []corev1.Capability{"NET_ADMIN"}
			}},
			{"with a user of the namespace", func(c *securityv1.SecurityContextConstraints) {
				c.RunAsUser.Type = securityv1.RunAsUserStrategyMustRunAsRange
			}},
			{"without folders in memory", func(c *securityv1.SecurityContextConstraints) {
				c.Volumes = []securityv1.FSType{securityv1.FSProjected}
			}},
			{"without tokens", func(c *securityv1.SecurityContextConstraints) {
				c.Volumes = []securityv1.FSType{securityv1.FSTypeEmptyDir}
			}},
		} {
			changed := c.DeepCopy()
			narrower.change(changed)
			if refusals(t, changed, pod) == "" {
				t.Errorf("%s is admitted %s", name, narrower.name)
			}
		}
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			if added := c.SecurityContext.Capabilities.Add; (len(added) > 0) != (c.Name == "holder") || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("container %s of %s has capabilities %v", c.Name, name, c.SecurityContext.Capabilities)
			}
		}
		// Of all that restricted-v2 refuses, it has two capabilities, and any user.
		for _, more := range changes() {
			wider := pod.DeepCopy()
			more.pod(wider)
			has := slices.Contains([]string{"NET_ADMIN", "NET_RAW", "root", "root in one container", "another namespace's user"}, more.name)
			if admitted := refusals(t, c, wider) == ""; more.refused != "" && admitted != has {
				t.Errorf("%s with %s: admitted %t", name, more.name, admitted)
			}
		}
	}
}
