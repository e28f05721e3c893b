package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Must fails the test with err, unless it is nil.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Report is Must for the end of a test: the test continues.
func Report(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Error(err)
	}
}

// WriteFile writes a file that only this user can read, and returns its path. path has the elements of the path.
func WriteFile(tb testing.TB, text string, path ...string) string {
	tb.Helper()
	file := filepath.Join(path...)
	Must(tb, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// Result is what a command has printed, and its exit code.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Execute runs a command for at most a duration, also at the end of the test. It fails the test if the
// command does not exit with a code.
func Execute(tb testing.TB, limit time.Duration, line ...string) Result {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || !exit.Exited()) {
		tb.Fatalf("%s: %v\n%s%s", cmd, err, &stdout, &stderr)
	}
	return Result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}
