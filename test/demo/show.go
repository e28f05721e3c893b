package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// A show runs commands, prints them with their output, and counts correct and wrong responses. It is a testing.TB, so that it can
// use the lab's fixtures: what a test would do at its end, a show does when perform returns, and a failure ends the show.
type show struct {
	testing.TB // nil; the show has the methods that the lab's fixtures call
	options

	out      io.Writer
	dir      string          // working directory
	ctx      context.Context //nolint:containedctx // as in a testing.T
	cleanups []func()
	err      error // of Error
	daemons  []*lab.Daemon
	total    int // number of checked responses
	wrong    int // number of wrong responses
}

// A failure is the panic that ends a show.
type failure struct{ error }

// perform runs a show in a working directory, which it deletes at the end.
func perform(ctx context.Context, out io.Writer, o options, play func(*show)) (err error) {
	dir, err := os.MkdirTemp("", "oooi-demo-")
	if err != nil {
		return fmt.Errorf("creating the working directory: %w", err)
	}
	s := &show{out: out, options: o, dir: dir, ctx: ctx}
	s.Cleanup(func() { s.check(os.RemoveAll(dir)) })
	defer func() {
		for len(s.cleanups) > 0 {
			last := s.cleanups[len(s.cleanups)-1]
			s.cleanups = s.cleanups[:len(s.cleanups)-1]
			err = errors.Join(err, attempt(last))
		}
		err = errors.Join(err, s.err)
	}()
	return attempt(func() { play(s) })
}

// attempt calls f and returns the failure that ends it.
func attempt(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	f()
	return nil
}

func (s *show) check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Methods of testing.TB.
func (s *show) Helper()                  {}
func (s *show) Context() context.Context { return s.ctx }
func (s *show) Cleanup(f func())         { s.cleanups = append(s.cleanups, f) }
func (s *show) Fatal(args ...any) {
	panic(failure{errors.New(strings.TrimSpace(fmt.Sprintln(args...)))})
}
func (s *show) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }
func (s *show) Error(args ...any)                 { s.err = errors.Join(s.err, errors.New(fmt.Sprint(args...))) }
func (s *show) Errorf(format string, args ...any) { s.Error(fmt.Sprintf(format, args...)) }
func (s *show) Log(args ...any)                   { progress("%s", fmt.Sprint(args...)) }
func (s *show) Logf(format string, args ...any)   { progress(format, args...) }
func (s *show) Failed() bool                      { return s.err != nil }

// printf prints a part of the transcript. The show ends if it cannot be written, for example because the reader of a pipe has exited.
func (s *show) printf(format string, args ...any) {
	_, err := fmt.Fprintf(s.out, format, args...)
	s.check(err)
}

// verdict prints a line of output with ok or WRONG, and counts it.
func (s *show) verdict(line string, right bool) {
	verdict := "ok"
	if !right {
		verdict = "WRONG"
		s.wrong++
	}
	s.total++
	s.printf("  %-69s %s\n", line, verdict)
}

// sum prints that all responses were correct, or fails.
func (s *show) sum() {
	if s.wrong > 0 {
		s.Fatalf("%d of %d answers were wrong", s.wrong, s.total)
	}
	s.printf("\nAll %d answers were correct.\n", s.total)
}

// await waits until condition returns true. It fails with what condition last returned when the demo is interrupted, a daemon
// exits or lab.WaitTimeout has passed.
func (s *show) await(what string, condition func() (done bool, state string)) {
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		done, state := condition()
		switch {
		case done:
			return
		case s.ctx.Err() != nil:
			s.Fatalf("waiting for %s: %v", what, s.ctx.Err())
		case time.Since(start) > lab.WaitTimeout:
			s.Fatalf("waiting for %s: timeout; last: %s", what, state)
		}
		s.checkDaemons("waiting for " + what)
	}
}

// write writes a file to the working directory and returns its path.
func (s *show) write(name, text string) string {
	path := filepath.Join(s.dir, name)
	s.check(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// daemon starts a program that must not exit before the end of the show.
func (s *show) daemon(name string, args ...string) {
	d := lab.NewDaemon(s, name, func() *exec.Cmd { return exec.Command(name, args...) }) //nolint:noctx // it is killed at the end of the show
	d.Start(s)
	s.daemons = append(s.daemons, d)
}

// checkDaemons fails if a daemon has exited.
func (s *show) checkDaemons(when string) {
	for _, d := range s.daemons {
		if d.Exited() {
			s.Fatalf("%s: a daemon exited; output:\n%s", when, d.Log.Tail())
		}
	}
}

// output runs a command and returns its standard output.
func (s *show) output(command ...string) string {
	cmd := exec.CommandContext(s.ctx, command[0], command[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("%s: %v: %s", cmd, err, stderr.String())
	}
	return string(out)
}

// run runs a command and prints it, as typed, with its output. Each wanted text must be in a line of the output, in which white
// space is normalized; these lines and the success of the command are counted as responses.
func (s *show) run(cmd *exec.Cmd, typed string, wanted ...string) {
	s.printf("$ %s\n", typed)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	s.check(cmd.Start())
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
			s.verdict(lines.Text(), true)
			wanted = slices.DeleteFunc(wanted, contained)
		case words == "":
			s.printf("\n")
		default:
			s.printf("  %s\n", lines.Text())
		}
	}
	err := <-ended
	s.check(s.ctx.Err())
	for _, line := range wanted {
		s.verdict("no line contains: "+line, false)
	}
	if err != nil {
		s.verdict(err.Error(), false)
	}
}

// followDeadline limits the wait for the effect of a change.
const followDeadline = 10 * time.Second

// applyAndWait applies a change and calls right until it returns true. It returns the time since the reply of the API server in
// milliseconds, as "1.2 ms".
func (s *show) applyAndWait(cp *lab.ControlPlane, change, what string, right func(context.Context) bool) string {
	ctx, cancel := context.WithTimeout(s.ctx, followDeadline)
	defer cancel()
	s.check(cp.ApplyYAML(ctx, []byte(change)))
	replied := time.Now()
	for !right(ctx) {
		if ctx.Err() != nil {
			s.Fatalf("waiting for %s: not within %s", what, followDeadline)
		}
	}
	return fmt.Sprintf("%.1f ms", float64(time.Since(replied).Microseconds())/1000)
}
