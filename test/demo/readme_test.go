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

// changing matches the parts of a transcript that differ from run to run.
var changing = regexp.MustCompile(`127\.0\.0\.1:\d+|\.:\d+|/\S+\.(kubeconfig|sock)|v\d+\.\d+\.\d+|tick \d+|(127|10)\.(96|244)\.\d+\.\d+|fd00:96::\S+|\d+\.\d+ ms|(after|in) \d+(\.\d+)?s|port 67 interval \d+|renewal in \d+ seconds|unknown_total \d+|\d+-\d+-\d+T\S+Z| +(\d+m)?\d+s +| +ok$`)

// transcriptFile is the environment variable with the path of a file with the output of make demo on a node. CI runs
// the demo before the tests.
const transcriptFile = "OOOI_DEMO_TRANSCRIPT"

// commands has the command that starts the demo in each mode.
var commands = map[mode]string{onNode: "make demo", onLoopback: "make demo MODE=loopback"}

// documented has the pages with transcripts, and the minimum number of console blocks of each mode.
var documented = []struct {
	page   string
	blocks map[mode]int
}{
	{"README.md", map[mode]int{onNode: 1}},
	{"docs/tutorial/quick-start.md", map[mode]int{onNode: 10, onLoopback: 6}},
}

// TestReadmeShowsWhatTheDemoPrints runs the demo in each mode, and checks that its output has every line of each
// page's transcripts, in this order. On a node it uses the transcript of transcriptFile, or runs the demo if the
// tests are long.
func TestReadmeShowsWhatTheDemoPrints(t *testing.T) {
	root, err := lab.Root()
	lab.Must(t, err)
	lab.Must(t, lab.TrackSources("api", "internal", "plugins", "corednsbuild", "coredhcpbuild", "xdsd", "kubectl-oooi", "manifests", "test/programs"))
	transcripts := map[string]map[mode][]string{}
	for _, s := range documented {
		transcripts[s.page] = readTranscripts(t, filepath.Join(root, s.page), s.blocks)
	}
	for _, test := range []struct {
		mode    mode
		require func(*testing.T)
	}{
		{onNode, func(t *testing.T) { t.Helper(); lab.NeedNode(t, demoCommands...) }},
		{onLoopback, func(*testing.T) {}},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			test.require(t)
			printed := ""
			if file := os.Getenv(transcriptFile); file != "" && test.mode == onNode {
				text, err := os.ReadFile(file)
				lab.Must(t, err)
				printed = string(text)
			} else if test.mode == onNode && !lab.Long() {
				t.Skipf("%s is not set; make test-long runs the demo", transcriptFile)
			} else {
				printed = runDemo(t, test.mode)
			}
			if _, why, found := strings.Cut(printed, " skipped: "); found {
				t.Skipf("the demo skipped parts that the pages show: %s", why)
			}
			for page, lines := range transcripts {
				if line, found := firstMissing(strings.Split(printed, "\n"), lines[test.mode]); found {
					t.Errorf("%s shows a line that the demo does not print at this place: %q\n%s", page, line, printed)
				}
			}
		})
	}
}

// build builds a program without cgo, as the Makefile does, because the image has no libc. It returns its path.
func build(t *testing.T, source string) string {
	t.Helper()
	path, err := lab.BuildStatic(t.Context(), source)
	lab.Must(t, err)
	return path
}

// runDemo runs the demo as a separate process, so that it can create a network namespace, and returns its standard
// output.
func runDemo(t *testing.T, m mode) string {
	t.Helper()
	args := []string{"-mode", string(m)}
	for option, source := range map[string]string{"-coredns": "./corednsbuild", "-xdsd": "./xdsd", "-coredhcp": "./coredhcpbuild", "-kubectl-oooi": "./kubectl-oooi"} {
		args = append(args, option, build(t, source))
	}
	demo := exec.CommandContext(t.Context(), build(t, "./test/demo"), args...)
	demo.Cancel = func() error { return demo.Process.Signal(syscall.SIGTERM) }
	demo.WaitDelay = time.Minute
	var out, progress bytes.Buffer
	demo.Stdout, demo.Stderr = &out, &progress
	if err := demo.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), progress.String())
	}
	return out.String()
}

// consoleBlock matches a console block of a page; the submatch is its content.
var consoleBlock = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// readTranscripts returns the lines of a page's console blocks for each mode, without empty lines and "...". A block
// that begins with the command of a mode starts its transcript, and the following blocks continue it. A page with
// fewer blocks of a mode than least fails the test.
func readTranscripts(t *testing.T, path string, least map[mode]int) map[mode][]string {
	t.Helper()
	page, err := os.ReadFile(path)
	lab.Must(t, err)
	var current mode
	blocks, transcripts := map[mode]int{}, map[mode][]string{}
	for _, block := range consoleBlock.FindAllStringSubmatch(string(page), -1) {
		first, rest, _ := strings.Cut(block[1], "\n")
		text := block[1]
		for m, command := range commands {
			if first == "$ "+command {
				current, text = m, rest
			}
		}
		if current == "" {
			t.Fatalf("%s: a console block before the first command that starts the demo: %q", path, first)
		}
		blocks[current]++
		for line := range strings.SplitSeq(text, "\n") {
			if strings.TrimSpace(line) != "" && strings.TrimSpace(line) != "..." {
				transcripts[current] = append(transcripts[current], line)
			}
		}
	}
	for m := range commands {
		if blocks[m] < least[m] {
			t.Fatalf("%s has %d console blocks of %s, want at least %d", path, blocks[m], commands[m], least[m])
		}
	}
	return transcripts
}

// firstMissing returns the first of the lines that is not in printed after the preceding lines.
func firstMissing(printed, lines []string) (string, bool) {
	for _, line := range lines {
		for len(printed) > 0 && plain(printed[0]) != plain(line) {
			printed = printed[1:]
		}
		if len(printed) == 0 {
			return line, true
		}
		printed = printed[1:]
	}
	return "", false
}

// plain returns a line without the parts that differ from run to run.
func plain(line string) string { return changing.ReplaceAllString(line, "") }
