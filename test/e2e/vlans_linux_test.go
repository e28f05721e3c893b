//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// secondInfra is the Infra of the hosted cluster's second VLAN, and secondNetwork its network in both namespaces.
var (
	secondInfra = strings.NewReplacer("metadata: {name: demo,", "metadata: {name: rack2,", "198.18.50.", "198.18.51.", vlan, secondVLAN,
		"  appsIngress: {enabled: true, source: Static, addresses: [198.18.50.200]}\n", "").Replace(infra)
	secondNetwork = strings.ReplaceAll(objects[strings.Index(objects, "apiVersion: k8s.cni.cncf.io"):], vlan, secondVLAN)
)

// nodePool is a NodePool of the hosted cluster. The arguments are its name and its network in namespace clusters-demo.
const nodePool = `
apiVersion: hypershift.openshift.io/v1beta1
kind: NodePool
metadata: {name: %s, namespace: clusters}
spec:
  clusterName: demo
  replicas: 1
  management: {upgradeType: Replace}
  release: {image: registry.example.com/release:4.20}
  platform: {type: KubeVirt, kubevirt: {attachDefaultNetwork: false, additionalNetworks: [{name: clusters-demo/%s}]}}
---
`

// TestSeveralVLANs sets up two VLANs of one hosted cluster, whose NodePools are on one each. VMs connect through the proxy of
// their own VLAN, and the teardown of one VLAN does not affect the other.
func TestSeveralVLANs(t *testing.T) {
	s := newSite(t)
	s.serveClusterDNS(t, node.Node)
	apply(t, s.cp, "%s", secondNetwork)
	pools := map[string]string{"a": vlan, "b": secondVLAN, "c": "elsewhere"}
	for name, network := range pools {
		apply(t, s.cp, nodePool, name, network)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for name := range pools {
			if err := s.cp.DeleteYAML(ctx, fmt.Appendf(nil, nodePool, name, vlan)); err != nil {
				t.Error(err)
			}
		}
	})
	down := false
	teardown := func() { // not with sync.OnceFunc, which panics if the test fails in it
		if !down {
			down = true
			s.oooi(t, "-n", "clusters", "teardown", "rack2", "--yes", "--leases")
		}
	}
	t.Cleanup(teardown)
	s.setup(t, infra, "--cluster-dns", "patch")
	patched := s.corefile(t)
	s.setup(t, secondInfra, "--cluster-dns", "patch")
	if got := s.corefile(t); got != patched {
		t.Errorf("setup of the second Infra adds a second server for the domain to the cluster's DNS:\n%s", got)
	}

	first, second := s.boot(t, "worker-1", "02:00:00:00:50:71"), s.bootOn(t, secondVLAN, "worker-2", "02:00:00:00:51:71")
	if second.dns != "198.18.51.6" || second.hostname != "worker-2" {
		t.Errorf("the lease on the second VLAN has DNS server %s and hostname %s", second.dns, second.hostname)
	}
	reach := func(v *vm) {
		t.Helper()
		proxy := strings.TrimSuffix(v.dns, ".6") + ".7"
		if got := strings.TrimSpace(v.Run(t, "dig", "@"+v.dns, "+short", "+time=5", apiHost)); got != proxy {
			t.Errorf("%s resolves to %s for %s, want %s", apiHost, got, v.hostname, proxy)
		}
		if got := greeting(t, v, s.roots, apiHost, 6443, proxy); got != apiHost {
			t.Errorf("%s of %s leads to %q", proxy, v.hostname, got)
		}
	}
	reach(first)
	reach(second)
	for _, infra := range []string{"demo", "rack2"} {
		got := runPod(t, s.cp, "clusters", "client-"+infra, "dig", "@"+clusterIP(t, s.cp, "clusters", infra+"-dns"), "+short", "+time=5", apiHost)
		if want := clusterIP(t, s.cp, "clusters", infra+"-proxy"); strings.TrimSpace(got) != want {
			t.Errorf("%s resolves to %s in a Pod that asks DNS of %s, want %s", apiHost, got, infra, want)
		}
	}

	// A NodePool on no Infra's network is reported, and is the only finding.
	found := s.oooi(t, "-n", "clusters", "doctor", "demo", "--only", "OOOI-HC-004", "--fail-on", "never")
	if !strings.Contains(found, "clusters/c") || strings.Contains(found, "clusters/a") || strings.Contains(found, "clusters/b") {
		t.Errorf("doctor finds\n%s", found)
	}
	if err := s.cp.DeleteYAML(t.Context(), fmt.Appendf(nil, nodePool, "c", vlan)); err != nil {
		t.Fatal(err)
	}
	delete(pools, "c")
	for _, infra := range []string{"demo", "rack2"} {
		s.oooi(t, "-n", "clusters", "doctor", infra, "--fail-on", "warn", "--strict", "--wait", "2m")
	}
	if status := s.oooi(t, "-n", "clusters", "status"); !strings.Contains(status, "demo") || !strings.Contains(status, "rack2") {
		t.Errorf("status is\n%s", status)
	}

	teardown()
	reach(first)
	s.oooi(t, "-n", "clusters", "doctor", "demo", "--only", "OOOI-DNS-004", "--fail-on", "warn", "--wait", "1m")
}
