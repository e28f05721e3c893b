package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// A launcher starts processes from one OS thread of its own. Where children
// die with their parent, the kernel takes the thread that started them for the
// parent, and threads of the Go runtime come and go.
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

// launch starts a command that dies with us. Attributes that it has already are for the
// caller to answer for.
func (l *launcher) launch(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = dieWithParent()
	}
	started := make(chan error, 1)
	l.jobs <- func() { started <- cmd.Start() }
	return <-started
}

// close ends the thread. The processes must have ended before.
func (l *launcher) close() { close(l.jobs) }

// A process is a running, or ended, component.
type process struct {
	name    string
	cmd     *exec.Cmd
	logFile string
	logFrom int64         // where in logFile this process began
	ended   chan struct{} // closed when it has ended, with err set
	err     error
}

// start runs cmd with its output appended to logFile.
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
		_ = log.Close() // not ours to write to
		close(p.ended)
	}()
	return p, nil
}

// kill ends the process as a crash would, and waits until it is gone. Killing
// one that has ended is fine, as is killing none.
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
	case <-time.After(10 * time.Second):
		return fmt.Errorf("killing %s: process %d is still there after 10s", p.name, p.cmd.Process.Pid)
	}
}

// running is false for none and for one that has ended.
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

// failure describes how a process ended that should not have.
func (p *process) failure() error {
	return fmt.Errorf("%s ended: %w; the end of %s:\n%s", p.name, exitError(p.err), p.logFile, p.logTail())
}

func exitError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// logTail returns the last lines of what this process has logged.
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
