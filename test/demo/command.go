package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// command runs a command and prints it, as typed, with its output. Each wanted text must be in a line of the output, in
// which white space is normalized; these lines and the success of the command are counted as answers.
func (t *transcript) command(ctx context.Context, cmd *exec.Cmd, typed string, wanted ...string) error {
	t.printf("$ %s\n", typed)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("running %s: %w", typed, err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		_ = in.Close() // ends the loop
	}()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		words := strings.Join(strings.Fields(lines.Text()), " ")
		contained := func(wanted string) bool { return strings.Contains(words, wanted) }
		switch {
		case slices.ContainsFunc(wanted, contained):
			t.verdict(lines.Text(), true)
			wanted = slices.DeleteFunc(wanted, contained)
		case words == "":
			t.printf("\n")
		default:
			t.printf("  %s\n", lines.Text())
		}
	}
	err := <-ended
	if ctx.Err() != nil {
		return fmt.Errorf("running %s: %w", typed, ctx.Err())
	}
	for _, line := range wanted {
		t.verdict("no line contains: "+line, false)
	}
	if err != nil {
		t.verdict(err.Error(), false)
	}
	return nil
}
