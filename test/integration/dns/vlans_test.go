package dns_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// overlappingCorefile serves two VLANs with the same CIDR. Only the listener distinguishes their clients.
const overlappingCorefile = `.:$DNS {
		bind 127.0.0.2
		errors
		prometheus 127.0.0.1:$METRICS
		hcpviews $DOMAIN {
			kubeconfig $KUBECONFIG
			infra clusters/blue
			view vlan
		}
		hcpapps $DOMAIN
		cache
		forward . $UPSTREAM
	}
	.:$DNS {
		bind 127.0.0.3
		errors
		prometheus 127.0.0.1:$METRICS
		hcpviews $DOMAIN {
			kubeconfig $KUBECONFIG
			infra clusters/green
			view vlan
		}
		hcpapps $DOMAIN
		cache
		forward . $UPSTREAM
	}
	.:$DNS {
		bind 127.0.0.1
		errors
		prometheus 127.0.0.1:$METRICS
		hcpviews $DOMAIN {
			kubeconfig $KUBECONFIG
			infra clusters/blue
			view pod
		}
		hcpapps $DOMAIN
		cache
	}`

// allInfrasCorefile serves the views of all Infras.
const allInfrasCorefile = `.:$DNS {
		bind 127.0.0.1
		prometheus 127.0.0.1:$METRICS
		hcpviews $DOMAIN {
			kubeconfig $KUBECONFIG
		}
	}`

func TestVLANsWithOneCIDRAreDistinguishedByListener(t *testing.T) {
	const vm, stranger = "127.50.0.10", "127.60.0.10"
	cp := management.Get(t)
	blue, green := blue, green
	green.net, green.proxy = blue.net, "127.50.0.4"
	blue.apps = "{enabled: true, source: Static, addresses: [192.0.2.100]}"
	green.apps = "{enabled: true, source: Static, addresses: [192.0.2.101]}"
	apply(t, cp, blue.yaml()+green.yaml())
	before := stableWatches(t, cp)
	c := startCoreDNS(t, overlappingCorefile, map[string]string{
		"DOMAIN": domain, "KUBECONFIG": cp.Kubeconfig(), "UPSTREAM": newUpstreamResolver(t).address,
	})
	questions := []question{
		{from: vm, to: "127.0.0.2", name: "api.blue." + domain, want: blue.proxy},
		{from: vm, to: "127.0.0.2", name: "shop.apps.blue." + domain, want: "192.0.2.100"},
		{from: vm, to: "127.0.0.2", name: "typo.blue." + domain, want: nxDomain},
		{from: vm, to: "127.0.0.2", name: "api.green." + domain, want: upstreamAnswer},
		{from: vm, to: "127.0.0.2", name: "shop.apps.green." + domain, want: upstreamAnswer},
		{from: vm, to: "127.0.0.3", name: "api.green." + domain, want: green.proxy},
		{from: vm, to: "127.0.0.3", name: "shop.apps.green." + domain, want: "192.0.2.101"},
		{from: vm, to: "127.0.0.3", name: "typo.green." + domain, want: nxDomain},
		{from: vm, to: "127.0.0.3", name: "api.blue." + domain, want: upstreamAnswer},
		{from: vm, to: "127.0.0.3", name: "shop.apps.blue." + domain, want: upstreamAnswer},
		{from: pod, to: "127.0.0.1", name: "api.blue." + domain, want: blue.pod},
		{from: pod, to: "127.0.0.1", name: "shop.apps.blue." + domain, want: blue.pod},
		{from: vm, to: "127.0.0.1", name: "api.blue." + domain, want: blue.pod},
		{from: stranger, to: "127.0.0.2", name: "api.blue." + domain, want: refused},
		{from: stranger, to: "127.0.0.3", name: "api.green." + domain, want: refused},
	}
	c.await(t, questions...)
	for range 2 { // from the caches as well
		c.expect(t, questions...)
	}

	// Three blocks with two plugins each share two stores, one for each Infra.
	if n := c.metric(t, "coredns_oooi_synced"); n != 2 {
		t.Errorf("%.0f stores are in use, want 2", n)
	}
	if n := c.metric(t, "coredns_oooi_synced", "infra clusters/blue"); n != 1 {
		t.Errorf("%.0f stores are in use for the blocks of one Infra, want 1", n)
	}
	openWatches := watches{"hostedclusters": 2, "infras": 2, "routes": 2, "services": 2}
	if got := watchesOf(t, cp).since(before); !maps.Equal(got, openWatches) {
		t.Errorf("%v watches are open, want %v", got, openWatches)
	}
	// The blocks of an Infra do not read the other Infra, so there is no overlap.
	if n := c.metric(t, "coredns_oooi_problems"); n != 0 {
		t.Errorf("%.0f problems", n)
	}

	moved := green
	moved.proxy = "127.50.0.44"
	update(t, cp, moved.infra())
	c.await(t, question{from: vm, to: "127.0.0.3", name: "api.green." + domain, want: moved.proxy})
	c.expect(t, question{from: vm, to: "127.0.0.2", name: "api.blue." + domain, want: blue.proxy})
}

// TestVLANsWithOneCIDRAndOneListenerAreRefused checks that clients whose view is ambiguous are refused.
func TestVLANsWithOneCIDRAndOneListenerAreRefused(t *testing.T) {
	cp := management.Get(t)
	blue, green := blue, green
	green.net, green.proxy = blue.net, "127.50.0.4"
	blue.apps, green.apps = "{enabled: false}", "{enabled: false}"
	apply(t, cp, blue.yaml()+green.yaml())
	c := startCoreDNS(t, allInfrasCorefile, map[string]string{"DOMAIN": domain, "KUBECONFIG": cp.Kubeconfig()})
	c.await(t,
		question{from: pod, name: "api.blue." + domain, want: blue.pod},
		question{from: pod, name: "api.green." + domain, want: green.pod},
	)
	c.expect(t,
		question{from: blueVM, name: "api.blue." + domain, want: refused},
		question{from: blueVM, name: "api.green." + domain, want: refused},
	)
	if n := c.metric(t, "coredns_oooi_problems", `reason="VLANOverlap"`); n == 0 {
		t.Error("the overlap is not reported")
	}
}

// TestClusterOnTwoVLANs checks that each VLAN gets its own proxy, and pods those of all VLANs that are ready.
func TestClusterOnTwoVLANs(t *testing.T) {
	cp := management.Get(t)
	blue := blue
	blue.apps = "{enabled: false}"
	second := green // the VLAN of further VMs of blue
	second.apps = blue.apps
	apply(t, cp, blue.yaml()+strings.Replace(second.infra(), "hostedClusterRef: {name: green}", "hostedClusterRef: {name: blue}", 1)+fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s-proxy, namespace: clusters}
spec: {clusterIP: %s, ports: [{port: 6443}]}
`, second.name, second.pod))
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
