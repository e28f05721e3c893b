package dns_test

import (
	"fmt"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// allInfrasCorefile serves the views of all Infras.
const allInfrasCorefile = `.:$DNS {
		bind 127.0.0.1
		prometheus 127.0.0.1:$METRICS
		hcpviews $DOMAIN {
			kubeconfig $KUBECONFIG
		}
	}`

// TestClusterOnTwoVLANs checks that each VLAN gets its own proxy, and pods those of all VLANs that are ready.
func TestClusterOnTwoVLANs(t *testing.T) {
	cp := management.Get(t)
	blue := blue
	blue.apps = "{enabled: false}"
	second := green // the VLAN of further VMs of blue
	second.apps = blue.apps
	cp.Create(t, blue.yaml(), second.infra("spec: {hostedClusterRef: {name: blue}}"),
		lab.Service("clusters", second.name+"-proxy", 6443, "spec: {clusterIP: "+second.pod+"}"))
	c := startCoreDNS(t, allInfrasCorefile, map[string]string{"DOMAIN": domain, "KUBECONFIG": cp.Kubeconfig()})
	name := "api.blue." + domain
	both := blue.pod + " " + second.pod
	vms := []question{{from: blueVM, name: name, want: blue.proxy}, {from: greenVM, name: name, want: second.proxy}}
	c.await(t, append(vms, question{from: pod, name: name, want: both})...)

	for _, step := range []struct{ blue, second, want string }{
		{"False", "True", second.pod},
		{"False", "False", both}, // one may work nevertheless
		{"True", "False", blue.pod},
		{"Unknown", "True", both},
	} {
		for infra, status := range map[string]string{blue.name: step.blue, second.name: step.second} {
			if err := cp.ApplyStatusYAML(t.Context(), fmt.Appendf(nil, `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %s, namespace: clusters}
status:
  conditions: [{type: ProxyReady, status: %q, reason: Test, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]
`, infra, status)); err != nil {
				t.Fatal(err)
			}
		}
		c.await(t, question{from: pod, name: name, want: step.want})
		c.expect(t, vms...)
	}
}
