package measure

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startDeadline limits the start of a process, until it has read all objects.
const startDeadline = 2 * time.Minute

// A Process is a measured process. It is killed when this process ends.
type Process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when the process has ended and err is set
	err   error
}

// Start starts a command, and writes its output to the file log.
func Start(name, log string, cmd *exec.Cmd) (*Process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("creating a log: %w", err)
	}
	defer func() { _ = file.Close() }() // the process keeps it open
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &Process{name: name, cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Pinned returns a command that runs on one CPU, or on all if cpu is nil.
func Pinned(ctx context.Context, cpu *int, name string, args ...string) *exec.Cmd {
	if cpu != nil {
		args = append([]string{"-c", strconv.Itoa(*cpu), name}, args...)
		name = "taskset"
	}
	return exec.CommandContext(ctx, name, args...)
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Alive returns an error if the process has ended.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %w", p.name, p.err)
	default:
		return nil
	}
}

// Await calls try every 20 ms until it succeeds. It returns an error, with the end of the log, if the process
// ends, ctx ends or startDeadline passes.
func (p *Process) Await(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.WithLog(fmt.Errorf("%s ended: %w", p.name, p.err))
		case <-ctx.Done():
			return p.WithLog(fmt.Errorf("waiting for %s: %w; last error: %w", p.name, ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// WithLog returns err with the last 4000 bytes of the process's log.
func (p *Process) WithLog(err error) error {
	log, readErr := os.ReadFile(p.log)
	if readErr != nil {
		return fmt.Errorf("%w; %w", err, readErr)
	}
	const maxLog = 4000
	return fmt.Errorf("%w; log:\n%s", err, log[max(0, len(log)-maxLog):])
}

// Stop kills the process and waits until it has ended.
func (p *Process) Stop() {
	if err := p.cmd.Process.Kill(); err == nil {
		<-p.ended
	}
}

// Pause sleeps by nanosleep(2). Go's timers have a resolution of a millisecond in an otherwise idle process.
func Pause(d time.Duration) {
	request := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&request, nil) // a signal may end it early
}
