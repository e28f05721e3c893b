package cmd

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/densityops/oooi/test/lab"
)

// runWithInput runs a command line with a text on its standard input.
func runWithInput(t *testing.T, in string, args ...string) (out, stderr string, code int) {
	t.Helper()
	var outBuffer, errBuffer bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code = Main(ctx, append([]string{"kubectl-oooi"}, args...), genericiooptions.IOStreams{In: strings.NewReader(in), Out: &outBuffer, ErrOut: &errBuffer})
	return outBuffer.String(), errBuffer.String(), code
}

// TestDocumentedConversion runs the example of docs/reference/cli.md.
func TestDocumentedConversion(t *testing.T) {
	_, section, _ := strings.Cut(docs(t), "\n## convert\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```[a-z]+\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 4 {
		t.Fatalf("the section has %d blocks, want ingress.yaml, the command, stderr and stdout", len(blocks))
	}
	t.Chdir(t.TempDir())
	lab.Must(t, os.WriteFile("ingress.yaml", []byte(blocks[0][1]), 0o600))
	_, command, _ := strings.Cut(blocks[1][1], "\n") // the first line is a comment
	line, into, _ := strings.Cut(strings.TrimSpace(command), " > ")
	line = strings.TrimPrefix(line, "kubectl oooi ")
	if into != "shop.yaml" {
		t.Errorf("the command is %s", blocks[1][1])
	}
	out, stderr, code := runWithInput(t, "", strings.Fields(line)...)
	if code != 0 || stderr != blocks[2][1] || out != blocks[3][1] {
		t.Errorf("convert exited with %d, stderr\n%s\nstdout\n%s", code, stderr, out)
	}
}
