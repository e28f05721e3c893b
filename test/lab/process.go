package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// A launcher starts all processes from one dedicated OS thread. For processes that are killed with their
// parent (see dieWithParent), the parent is the thread that started them, and the Go runtime may end its
// threads at any time.
type launcher struct{ jobs chan func() }

func newLauncher() *launcher {
	l := &launcher{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for job := range l.jobs {
			job()
		}
	}()
	return l
}

// dieWithParent returns attributes with which the kernel kills the process when its parent ends for any
// reason. A separate process group protects it from Ctrl-C, so that Stop decides when it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// launch starts a command that is killed when this process ends, unless the caller has set cmd.SysProcAttr.
func (l *launcher) launch(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = dieWithParent()
	}
	started := make(chan error, 1)
	l.jobs <- func() { started <- cmd.Start() }
	return <-started
}

// close ends the thread. All processes must have ended.
func (l *launcher) close() { close(l.jobs) }

// A process is a component that runs or has ended.
type process struct {
	name    string
	cmd     *exec.Cmd
	logFile string
	logFrom int64         // offset in logFile at which the output of this process starts
	ended   chan struct{} // closed after err is set
	err     error
}

// start starts cmd, and appends its output to logFile.
func (l *launcher) start(cmd *exec.Cmd, logFile string) (*process, error) {
	p := &process{name: cmd.Args[0], cmd: cmd, logFile: logFile, ended: make(chan struct{})}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	if p.logFrom, err = log.Seek(0, io.SeekEnd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, errors.Join(err, log.Close()))
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := l.launch(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, errors.Join(err, log.Close()))
	}
	go func() {
		p.err = cmd.Wait()
		_ = log.Close() // only the process has written to it
		close(p.ended)
	}()
	return p, nil
}

// killTimeout is how long kill waits: the init process of a node ends after all processes in its PID namespace, which
// takes more than 10 seconds on a busy machine.
const killTimeout = time.Minute

// kill sends SIGKILL and waits until the process has ended. It does nothing if the process is nil or has
// ended.
func (p *process) kill() error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(killTimeout):
		return fmt.Errorf("killing %s: process %d still exists after %s", p.name, p.cmd.Process.Pid, killTimeout)
	}
}

// running reports whether the process has not ended. It is false for nil.
func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// failure returns an error that describes how a process ended unexpectedly, with the end of its log.
func (p *process) failure() error {
	return fmt.Errorf("%s ended: %w; end of %s:\n%s", p.name, exitError(p.err), p.logFile, p.logTail())
}

func exitError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// logTail returns the last 20 lines of this process's log.
func (p *process) logTail() string {
	const size, lines = 8 << 10, 20
	f, err := os.Open(p.logFile)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	if _, err := f.Seek(max(p.logFrom, end-size), io.SeekStart); err != nil {
		return err.Error()
	}
	data, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return err.Error()
	}
	return lastLines(string(data), lines)
}
