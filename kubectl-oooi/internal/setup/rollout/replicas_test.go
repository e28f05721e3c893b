package rollout_test

import (
	"slices"
	"strings"
	"testing"
)

// TestReplicasKeepTheirPods adds a replica of DNS, removes the first one, and adds it again. The pod of a replica that stays
// must not be replaced.
func TestReplicasKeepTheirPods(t *testing.T) {
	s := newRunningSite(t)
	good := s.Infra
	pod := func(name string) string {
		t.Helper()
		return string(s.pod(name).UID)
	}
	setup := func(dns string) {
		t.Helper()
		s.Infra = strings.Replace(good, "dns: {serverIP: 192.0.2.3}", dns, 1)
		s.Expect(0, "setup -f FILE")
		if stderr, code := s.setup(); code != 0 || strings.Contains(stderr, "configured") {
			t.Errorf("%s: another setup exited with %d and printed %s", dns, code, stderr)
		}
	}
	first := pod("demo-dns-0")
	setup("dns: {instances: [{ip: 192.0.2.6}, {ip: 192.0.2.3}]}")
	if now := pod("demo-dns-0"); now != first {
		t.Error("adding a replica replaced the pod of the first one")
	}
	second := pod("demo-dns-192-0-2-6-0")
	setup("dns: {serverIP: 192.0.2.6}")
	if s.exists("demo-dns") || pod("demo-dns-192-0-2-6-0") != second {
		t.Error("removing a replica replaced the pod of the other one, or kept its own")
	}
	setup("dns: {instances: [{ip: 192.0.2.3}, {ip: 192.0.2.6}]}")
	if pod("demo-dns-192-0-2-6-0") != second || !s.exists("demo-dns-192-0-2-3") {
		t.Errorf("adding a replica again: %s", slices.Sorted(slices.Values(s.podUIDs())))
	}
}
