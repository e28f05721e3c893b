package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// changing are the parts of a transcript that differ from run to run.
var changing = regexp.MustCompile(`127\.0\.0\.1:\d+|\.:\d+|/\S+\.(kubeconfig|sock)|v\d+\.\d+\.\d+|tick \d+|127\.96\.\d+\.\d+|fd00:96::\S+|\d+\.\d+ ms|port 67 interval \d+|renewal in \d+ seconds|unknown_total \d+| +\d+s +| +ok$`)

// TestReadmeShowsWhatTheDemoPrints runs the demo and finds every line of the
// README's transcript in what it prints, in that order.
func TestReadmeShowsWhatTheDemoPrints(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "./corednsbuild", "./xdsd", "./coredhcpbuild", "./test/cmd/demo")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building what the demo needs, and itself: %v\n%s", err, out)
	}
	// As a program of its own, which can enter a network namespace.
	demo := exec.CommandContext(t.Context(), filepath.Join(dir, "demo"), "-coredns", filepath.Join(dir, "corednsbuild"), "-xdsd", filepath.Join(dir, "xdsd"),
		"-coredhcp", filepath.Join(dir, "coredhcpbuild"))
	demo.Cancel = func() error { return demo.Process.Signal(syscall.SIGTERM) }
	demo.WaitDelay = time.Minute
	var out, progress bytes.Buffer
	demo.Stdout, demo.Stderr = &out, &progress
	if err := demo.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), progress.String())
	}
	if _, why, found := strings.Cut(out.String(), " left out: "); found {
		t.Skipf("the demo ran, but not all of it, so that the README shows more: %s", why)
	}
	printed := strings.Split(out.String(), "\n")
	for _, line := range readmeTranscript(t, root) {
		for len(printed) > 0 && plain(printed[0]) != plain(line) {
			printed = printed[1:]
		}
		if len(printed) == 0 {
			t.Fatalf("the README shows a line that the demo does not print there: %q\n%s", line, out.String())
		}
		printed = printed[1:]
	}
}

// readmeTranscript returns the lines of the README's console block, without those
// that stand for what was left out.
func readmeTranscript(t *testing.T, root string) []string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "\n```console\n$ make demo\n")
	block, _, found := strings.Cut(rest, "\n```\n")
	if !found {
		t.Fatal("README.md has no transcript of make demo")
	}
	var lines []string
	for line := range strings.SplitSeq(block, "\n") {
		if strings.TrimSpace(line) != "" && strings.TrimSpace(line) != "..." {
			lines = append(lines, line)
		}
	}
	return lines
}

func plain(line string) string { return changing.ReplaceAllString(line, "") }
