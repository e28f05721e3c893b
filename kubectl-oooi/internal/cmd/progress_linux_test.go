package cmd

import (
	"bufio"
	"bytes"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/densityops/oooi/test/lab"
)

func TestProgressNeedsATerminal(t *testing.T) {
	master, slave := lab.Terminal(t)
	c := &command{IOStreams: genericiooptions.IOStreams{ErrOut: slave}}
	for _, activity := range []string{"reading", "reading", "probing"} {
		c.progress(activity)
	}
	lines := bufio.NewScanner(master)
	for _, want := range []string{"reading", "probing"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("printed %q, want %q", lines.Text(), want)
		}
	}
	var file bytes.Buffer
	(&command{IOStreams: genericiooptions.IOStreams{ErrOut: &file}}).progress("reading")
	if file.Len() > 0 {
		t.Errorf("progress printed %q to a stream that is no terminal", &file)
	}
}
