package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	if _, err := exec.LookPath("diff"); err != nil {
		t.Skip("the program diff is not installed")
	}
	s := newSite(t)
	withNamespace := func(text string) string { return strings.ReplaceAll(text, "NS", s.Namespace) }
	before := s.Everything()
	out, stderr, code := s.Run("diff", "-f", "FILE")
	if code != 1 || !strings.Contains(out, "+kind: StatefulSet\n") || !strings.Contains(out, "+kind: Infra\n") || strings.Contains(out, "\n-kind") || strings.Contains(stderr, "restarts") {
		t.Errorf("before setup diff exited with %d, stderr %s, stdout\n%s", code, stderr, out)
	}
	s.Unchanged(before)

	s.Setup()
	before = s.Everything()
	if out, stderr, code := s.Run("diff", "-f", "FILE"); code != 0 || out != "" || stderr != "" {
		t.Errorf("after setup diff exited with %d, stderr %s, stdout\n%s", code, stderr, out)
	}
	original := s.Infra
	s.Infra = strings.Replace(original, "192.0.2.99", "192.0.2.89", 1)
	out, stderr, code = s.Run("diff", "-f", "FILE")
	for _, has := range []string{"\n-      rangeEnd: 192.0.2.99\n+      rangeEnd: 192.0.2.89\n", "/LIVE/v1.ConfigMap." + withNamespace("NS") + ".demo-dhcp", "/MERGED/apps.v1.StatefulSet." + withNamespace("NS") + ".demo-dhcp"} {
		if !strings.Contains(out, has) {
			t.Errorf("diff did not print %q:\n%s", has, out)
		}
	}
	if code != 1 || stderr != withNamespace("restarts pod NS/demo-dhcp-0\n") || strings.Contains(out, "demo-dns") || strings.Contains(out, "managedFields") {
		t.Errorf("with another range diff exited with %d, stderr %s, stdout\n%s", code, stderr, out)
	}
	s.Infra = strings.Replace(original, "dhcp: {", "dhcp: {enabled: false, ", 1)
	if out, stderr, code := s.Run("diff", "-f", "FILE"); code != 1 || stderr != withNamespace("deletes pod NS/demo-dhcp-0\n") || !strings.Contains(out, "\n-kind: StatefulSet\n") {
		t.Errorf("without DHCP diff exited with %d, stderr %s, stdout\n%s", code, stderr, out)
	}

	// Another program, with options. No shell runs the command line.
	program := filepath.Join(t.TempDir(), "compare")
	s.Must(os.WriteFile(program, []byte("#!/bin/sh\necho \"$#: $1\"\nls \"$2\"\nexit 1\n"), 0o700))
	t.Setenv("KUBECTL_EXTERNAL_DIFF", program+" --brief ;ls")
	if out, stderr, code := s.Run("diff", "-f", "FILE"); code != 1 || !strings.HasPrefix(out, "3: --brief\n") || !strings.Contains(out, withNamespace("apps.v1.StatefulSet.NS.demo-dhcp\n")) {
		t.Errorf("another program: diff exited with %d, stderr %s, stdout\n%s", code, stderr, out)
	}
	t.Setenv("KUBECTL_EXTERNAL_DIFF", filepath.Join(t.TempDir(), "none"))
	s.Expect(2, "diff -f FILE", "error: running diff program ", "set KUBECTL_EXTERNAL_DIFF")

	// Input that setup refuses is an error of diff.
	s.Infra = strings.Replace(original, "serverIP: 192.0.2.4", "serverIP: 192.0.2.3", 1)
	if out, stderr, code := s.Run("diff", "-f", "FILE"); code != 2 || !strings.HasPrefix(stderr, "error: AddressConflict: ") || out != "" {
		t.Errorf("an address conflict: diff exited with %d, stderr %s, stdout %s", code, stderr, out)
	}
	if _, stderr, code := s.Run("diff"); code != 2 || !strings.HasPrefix(stderr, "error: specify a file with -f, or the name of an Infra") {
		t.Errorf("without an Infra diff exited with %d, stderr %s", code, stderr)
	}
	s.Unchanged(before)
}

func TestServerDryRunPrintsEachObject(t *testing.T) {
	s := newSite(t)
	withNamespace := func(text string) string { return strings.ReplaceAll(text, "NS", s.Namespace) }
	dry := func(last string, want ...string) {
		t.Helper()
		before := s.Everything()
		out, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=server")
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if code != 0 || !strings.HasSuffix(out, "\n"+withNamespace(last)+"\n") {
			t.Errorf("the dry run exited with %d, stderr %s, want %q at the end of %s", code, stderr, last, out)
		}
		for _, line := range want {
			if !slices.Contains(lines, withNamespace(line)+" (server dry run)") {
				t.Errorf("the dry run did not print %s:\n%s", withNamespace(line), out)
			}
		}
		s.Unchanged(before)
	}
	dry("restarts no pod", "Infra NS/demo created", "StatefulSet NS/demo-dns created")
	s.Setup()
	dry("restarts no pod", "Infra NS/demo unchanged", "StatefulSet NS/demo-dns unchanged", "Namespace oooi-system unchanged")
	s.Infra = strings.Replace(strings.Replace(s.Infra, "dhcp: {", "dhcp: {enabled: false, ", 1), "serverIP: 192.0.2.4", "serverIP: 192.0.2.5", 1)
	dry("restarts pod NS/demo-proxy-0\ndeletes pod NS/demo-dhcp-0", "Infra NS/demo configured", "ConfigMap NS/"+s.ConfigOf("demo-dns")+" unchanged", "NetworkAttachmentDefinition NS/"+s.NetworkOf("demo-proxy")+" deleted",
		"StatefulSet NS/demo-proxy configured", "StatefulSet NS/demo-dns unchanged", "StatefulSet NS/demo-dhcp deleted", "ConfigMap NS/"+s.ConfigOf("demo-dhcp")+" deleted")
}
