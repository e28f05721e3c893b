package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// changing are the parts of a transcript that differ from run to run.
var changing = regexp.MustCompile(`127\.0\.0\.1:\d+|\.:\d+|/\S+\.(kubeconfig|sock)|v\d+\.\d+\.\d+|tick \d+|(127|10)\.(96|244)\.\d+\.\d+|fd00:96::\S+|\d+\.\d+ ms|after \d+(\.\d+)?s|port 67 interval \d+|renewal in \d+ seconds|unknown_total \d+|\d+-\d+-\d+T\S+Z| +(\d+m)?\d+s +| +ok$`)

// transcriptFile is an environment variable: a file with what make demo has printed on a node. CI
// has run that before the tests.
const transcriptFile = "OOOI_DEMO_TRANSCRIPT"

// TestReadmeShowsWhatTheDemoPrints runs the demo and finds every line of the README's transcripts in
// what it prints, in that order. On a node it runs it only in a long test where there is no transcript.
func TestReadmeShowsWhatTheDemoPrints(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.LookAt("api", "internal", "plugins", "corednsbuild", "coredhcpbuild", "xdsd", "kubectl-oooi", "manifests", "test/programs"); err != nil {
		t.Fatal(err)
	}
	build := sync.OnceValues(func() (string, error) { return buildDemo(t, root) })
	for _, test := range []struct {
		mode  mode
		typed string
		need  func(*testing.T)
	}{
		{onNode, "make demo", func(t *testing.T) { t.Helper(); lab.NeedNode(t, demoCommands()...) }},
		{onLoopback, "make demo MODE=loopback", func(*testing.T) {}},
	} {
		t.Run(test.mode.String(), func(t *testing.T) {
			test.need(t)
			printed := ""
			if file := os.Getenv(transcriptFile); file != "" && test.mode == onNode {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				printed = string(text)
			} else if test.mode == onNode && !lab.Long() {
				t.Skipf("%s names no transcript of make demo; make test-long runs it", transcriptFile)
			} else {
				dir, err := build()
				if err != nil {
					t.Fatal(err)
				}
				printed = runDemo(t, dir, test.mode)
			}
			if _, why, found := strings.Cut(printed, " left out: "); found {
				t.Skipf("the demo ran, but not all of it, so that the README shows more: %s", why)
			}
			rest := strings.Split(printed, "\n")
			for _, line := range readmeTranscript(t, root, test.typed) {
				for len(rest) > 0 && plain(rest[0]) != plain(line) {
					rest = rest[1:]
				}
				if len(rest) == 0 {
					t.Fatalf("the README shows a line that the demo does not print there: %q\n%s", line, printed)
				}
				rest = rest[1:]
			}
		})
	}
}

// buildDemo builds the demo and what it runs, as the Makefile does: images take binaries without
// C. It returns their folder.
func buildDemo(t *testing.T, root string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir,
		"./corednsbuild", "./xdsd", "./coredhcpbuild", "./kubectl-oooi", "./test/demo")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building what the demo needs, and itself: %w\n%s", err, out)
	}
	return dir, nil
}

// runDemo runs the demo, as a program of its own, which can enter a network namespace. It
// returns what that prints.
func runDemo(t *testing.T, dir string, m mode) string {
	t.Helper()
	demo := exec.CommandContext(t.Context(), filepath.Join(dir, "demo"), "-mode", m.String(), "-coredns", filepath.Join(dir, "corednsbuild"),
		"-xdsd", filepath.Join(dir, "xdsd"), "-coredhcp", filepath.Join(dir, "coredhcpbuild"), "-kubectl-oooi", filepath.Join(dir, "kubectl-oooi"))
	demo.Cancel = func() error { return demo.Process.Signal(syscall.SIGTERM) }
	demo.WaitDelay = time.Minute
	var out, progress bytes.Buffer
	demo.Stdout, demo.Stderr = &out, &progress
	if err := demo.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), progress.String())
	}
	return out.String()
}

// readmeTranscript returns the lines of the README's console block of a command, without those
// that stand for what was left out.
func readmeTranscript(t *testing.T, root, typed string) []string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "\n```console\n$ "+typed+"\n")
	block, _, found := strings.Cut(rest, "\n```\n")
	if !found {
		t.Fatalf("README.md has no transcript of %s", typed)
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
