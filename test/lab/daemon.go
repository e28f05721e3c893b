package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Daemon is a child process of a test. It can be killed and restarted, and is killed when the test ends.
type Daemon struct {
	// Log is the output of the current or last process; nil before the first.
	Log *Output

	name     string
	command  func() *exec.Cmd
	launcher *launcher
	cmd      *exec.Cmd     // nil while no process runs
	ended    chan struct{} // closed when cmd has ended
}

// NewDaemon returns a Daemon that is not started. Start calls command for each process. If the test fails,
// the end of the log is printed.
func NewDaemon(tb testing.TB, name string, command func() *exec.Cmd) *Daemon {
	tb.Helper()
	d := &Daemon{name: name, command: command, launcher: newLauncher()}
	tb.Cleanup(func() {
		if tb.Failed() && d.Log != nil {
			tb.Logf("end of the log of %s:\n%s", d.name, d.Log.Tail())
		}
		d.Kill(tb)
		d.launcher.close()
	})
	return d
}

// Start starts the process.
func (d *Daemon) Start(tb testing.TB) {
	tb.Helper()
	cmd, log, ended := d.command(), &Output{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = log, log
	Must(tb, d.launcher.launch(cmd))
	d.cmd, d.Log, d.ended = cmd, log, ended
	go func() {
		defer close(ended)
		if err := cmd.Wait(); err != nil {
			fmt.Fprintln(log, "ended:", err)
		}
	}()
}

// Kill sends SIGKILL and waits until the process has ended. It fails the test if the process had already
// exited, or if its log has a data race or a panic.
func (d *Daemon) Kill(tb testing.TB) {
	tb.Helper()
	if d.cmd == nil {
		return
	}
	select {
	case <-d.ended:
		tb.Errorf("%s exited unexpectedly:\n%s", d.name, d.Log.Tail())
	default:
		if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			tb.Error(err)
		}
		<-d.ended
	}
	d.check(tb)
}

// check fails the test if the log of the process, which has ended, has a data race or a panic.
func (d *Daemon) check(tb testing.TB) {
	tb.Helper()
	d.cmd = nil
	for _, fault := range []string{"DATA RACE", "[PANIC]", "Recovered from panic", "panic:"} {
		if at := strings.Index(d.Log.String(), fault); at >= 0 {
			tb.Errorf("%s logged:\n%.4000s", d.name, d.Log.String()[at:])
		}
	}
}

// Terminate sends SIGTERM, and fails the test if the process does not exit with code 0 within startTimeout.
func (d *Daemon) Terminate(tb testing.TB) {
	tb.Helper()
	d.Signal(tb, syscall.SIGTERM)
	d.AwaitEnd(tb)
}

// AwaitEnd fails the test if the process does not exit with code 0 within startTimeout.
func (d *Daemon) AwaitEnd(tb testing.TB) {
	tb.Helper()
	select {
	case <-d.ended:
		if code := d.cmd.ProcessState.ExitCode(); code != 0 {
			tb.Errorf("%s exited with code %d:\n%s", d.name, code, d.Log.Tail())
		}
		d.check(tb)
	case <-time.After(startTimeout):
		tb.Fatalf("%s does not exit:\n%s", d.name, d.Log.Tail())
	}
}

// Exited reports whether the process has exited without Kill or Terminate.
func (d *Daemon) Exited() bool {
	select {
	case <-d.ended:
		return d.cmd != nil
	default:
		return false
	}
}

// PID returns the ID of the running process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Signal sends the process a signal.
func (d *Daemon) Signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	Must(tb, d.cmd.Process.Signal(signal))
}
