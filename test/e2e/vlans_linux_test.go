//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// secondInfra is the Infra of the hosted cluster's second VLAN.
var secondInfra = infraOn(lab.Site{Name: "rack2", VLAN: "198.18.51", Network: secondVLAN}, "spec: {hostedClusterRef: {name: demo}}")

// nodePool returns a NodePool of the hosted cluster on a network in namespace clusters-demo.
func nodePool(name, network string) string {
	return lab.Site{Network: "clusters-demo/" + network}.NodePool(name)
}

// TestSeveralVLANs sets up two VLANs of one hosted cluster, whose NodePools are on one each. VMs connect through their
// VLAN's proxy, and the teardown of one VLAN does not affect the other.
func TestSeveralVLANs(t *testing.T) {
	s := newSite(t)
	s.serveClusterDNS(t, node.Node)
	vlanServer(t, s.ca, "*.apps."+domain)
	s.cp.MustApply(t, networks(secondVLAN))
	s.cp.Create(t, nodePool("a", vlan), nodePool("b", secondVLAN), nodePool("c", "elsewhere"))
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
	lab.Must(t, s.cp.DeleteYAML(t.Context(), []byte(nodePool("c", "elsewhere"))))
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
