// Package golden compares the output of tests with golden files.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "update the golden files")

// Check fails the test if got differs from the content of a golden file. With -update it writes the file
// first; 'make golden' does so for all packages.
func Check(tb testing.TB, file, got string) {
	tb.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		tb.Errorf("differs from %s (-want +got); update it with: go test -update\n%s", file, diff)
	}
}

// Updating reports whether the test runs with -update, for files that a test writes and does not compare.
func Updating() bool { return *update }
