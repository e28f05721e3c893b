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

// A Daemon is a process that a test looks at from outside. It can be killed and started
// again, and ends with the test.
type Daemon struct {
	// Log is what the process says, the present or the last one; nil before the first.
	Log *Output

	name     string
	command  func() *exec.Cmd
	launcher *launcher
	cmd      *exec.Cmd     // nil while there is none
	ended    chan struct{} // closed when cmd has ended
}

// NewDaemon is for the process that command makes, each time anew. If the test fails, the
// end of its log is shown.
func NewDaemon(tb testing.TB, name string, command func() *exec.Cmd) *Daemon {
	tb.Helper()
	d := &Daemon{name: name, command: command, launcher: newLauncher()}
	tb.Cleanup(func() {
		if tb.Failed() && d.Log != nil {
			tb.Logf("the end of what %s said:\n%s", d.name, d.Log.Tail())
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
	if err := d.launcher.launch(cmd); err != nil {
		tb.Fatal(err)
	}
	d.cmd, d.Log, d.ended = cmd, log, ended
	go func() {
		defer close(ended)
		if err := cmd.Wait(); err != nil {
			fmt.Fprintln(log, "ended:", err)
		}
	}()
}

// Kill ends the process as a crash would. It fails the test if the process has ended by
// itself, or has said what none must ever say.
func (d *Daemon) Kill(tb testing.TB) {
	tb.Helper()
	if d.cmd == nil {
		return
	}
	select {
	case <-d.ended:
		tb.Errorf("%s ended by itself:\n%s", d.name, d.Log.Tail())
	default:
		if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			tb.Error(err)
		}
		<-d.ended
	}
	d.check(tb)
}

// check fails the test if the process, which has ended, has said what none must ever say.
func (d *Daemon) check(tb testing.TB) {
	tb.Helper()
	d.cmd = nil
	for _, fault := range []string{"DATA RACE", "[PANIC]", "Recovered from panic", "panic:"} {
		if at := strings.Index(d.Log.String(), fault); at >= 0 {
			tb.Errorf("%s says:\n%.4000s", d.name, d.Log.String()[at:])
		}
	}
}

// Terminate asks the process to end, and fails the test if it does not do so in time and in
// peace.
func (d *Daemon) Terminate(tb testing.TB) {
	tb.Helper()
	d.Signal(tb, syscall.SIGTERM)
	select {
	case <-d.ended:
		if code := d.cmd.ProcessState.ExitCode(); code != 0 {
			tb.Errorf("%s ended with %d:\n%s", d.name, code, d.Log.Tail())
		}
		d.check(tb)
	case <-time.After(startTimeout):
		tb.Fatalf("%s does not end:\n%s", d.name, d.Log.Tail())
	}
}

// Signal sends the process a signal.
func (d *Daemon) Signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	if err := d.cmd.Process.Signal(signal); err != nil {
		tb.Fatal(err)
	}
}
