package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDiffRunsAnotherProgram sets KUBECTL_EXTERNAL_DIFF to a program with options. No shell runs the command line.
func TestDiffRunsAnotherProgram(t *testing.T) {
	s := newSite(t)
	program := filepath.Join(t.TempDir(), "compare")
	s.Must(os.WriteFile(program, []byte("#!/bin/sh\necho \"$#: $1\"\nls \"$2\"\nexit 1\n"), 0o700))
	t.Setenv("KUBECTL_EXTERNAL_DIFF", program+" --brief ;ls")
	s.Setup()
	s.Infra = strings.Replace(s.Infra, "192.0.2.99", "192.0.2.89", 1)
	if out, stderr, code := s.Run("diff", "-f", "FILE"); code != 1 || !strings.HasPrefix(out, "3: --brief\n") || !strings.Contains(out, "apps.v1.StatefulSet."+s.Namespace+".demo-dhcp\n") {
		t.Errorf("diff exited with %d, stderr %s, stdout\n%s", code, stderr, out)
	}
	t.Setenv("KUBECTL_EXTERNAL_DIFF", filepath.Join(t.TempDir(), "none"))
	s.Expect(2, "diff -f FILE", "error: running diff program ", "set KUBECTL_EXTERNAL_DIFF")
}
