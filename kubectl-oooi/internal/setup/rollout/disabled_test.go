package rollout_test

import (
	"slices"
	"strings"
	"testing"
)

// deletions returns the objects that setup or its dry run says are deleted, sorted.
func deletions(output string) (list []string) {
	for line := range strings.Lines(output) {
		line = strings.TrimSuffix(strings.TrimSpace(line), " (server dry run)")
		if object, deleted := strings.CutSuffix(line, " deleted"); deleted {
			list = append(list, object)
		}
	}
	slices.Sort(list)
	return list
}

// TestDisabledComponentIsDeleted disables each component and enables it again. Setup must not wait until the disabled
// one works, and must replace only pods whose configuration changes.
func TestDisabledComponentIsDeleted(t *testing.T) {
	s := newRunningSite(t)
	good := s.Infra
	for _, tc := range []struct {
		component, old, new string
		kept                []string
	}{
		{"dhcp", "dhcp: {", "dhcp: {enabled: false, ", []string{"demo-dns", "demo-proxy"}},
		{"dns", "    dns: {serverIP: 192.0.2.3}\n", "", []string{"demo-proxy"}},
		{"proxy", "proxy: {", "proxy: {enabled: false, ", []string{"demo-dns"}},
		// DNS gets the address of the disabled proxy.
		{"proxy", "dns: {serverIP: 192.0.2.3}\n    proxy: {", "dns: {serverIP: 192.0.2.4}\n    proxy: {enabled: false, ", nil},
	} {
		pods := s.podUIDs()
		s.Infra = strings.Replace(good, tc.old, tc.new, 1)
		if s.Infra == good {
			t.Fatalf("%s: nothing was changed", tc.component)
		}
		preview, _, _ := s.Run("setup", "-f", "FILE", "--dry-run=server")
		stderr, code := s.setup()
		if code != 0 || strings.Contains(stderr, "rolling it back") || s.exists("demo-"+tc.component) {
			t.Fatalf("disabling %s: setup exited with %d: %s", tc.component, code, stderr)
		}
		if announced, done := deletions(preview), deletions(stderr); len(announced) < 3 || !slices.Equal(announced, done) {
			t.Errorf("disabling %s: the dry run announced the deletion of %q, and setup deleted %q", tc.component, announced, done)
		}
		deleted := strings.Index(stderr, "StatefulSet "+s.Namespace+"/demo-"+tc.component+" deleted")
		dns := strings.Index(stderr, "StatefulSet "+s.Namespace+"/demo-dns configured")
		if reused := tc.kept == nil; deleted < 0 || reused != (deleted < dns) {
			t.Errorf("disabling %s: the StatefulSet must be deleted first only if its address is used again: %s", tc.component, stderr)
		}
		now := s.podUIDs()
		for _, pod := range pods {
			if slices.ContainsFunc(tc.kept, func(name string) bool { return strings.HasPrefix(pod, name+"-0 ") }) && !slices.Contains(now, pod) {
				t.Errorf("disabling %s replaced pod %s", tc.component, pod)
			}
		}
		if tc.kept == nil {
			break
		}
		s.Infra = good
		if stderr, code := s.setup(); code != 0 || !s.exists("demo-"+tc.component) {
			t.Fatalf("enabling %s: setup exited with %d: %s", tc.component, code, stderr)
		}
	}
}
