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

// startDeadline bounds a process's start, its reading of all objects included.
const startDeadline = 2 * time.Minute

// A Process is one that is measured. It ends with us.
type Process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it has ended, with err set
	err   error
}

// Start starts a command. What it says is kept in a file, log.
func Start(name, log string, cmd *exec.Cmd) (*Process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	defer func() { _ = file.Close() }() // the process has it, too
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

// Pinned is a command on one CPU, or on all where that is nil.
func Pinned(ctx context.Context, cpu *int, name string, args ...string) *exec.Cmd {
	if cpu != nil {
		args = append([]string{"-c", strconv.Itoa(*cpu), name}, args...)
		name = "taskset"
	}
	return exec.CommandContext(ctx, name, args...)
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Alive fails if the process has ended.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %w", p.name, p.err)
	default:
		return nil
	}
}

// Await returns when something succeeds that the process is to do once it has started.
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
			return p.Blame(fmt.Errorf("%s ended: %w", p.name, p.err))
		case <-ctx.Done():
			return p.Blame(fmt.Errorf("waiting for %s: %w; last: %w", p.name, ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Blame adds the end of what the process has said to an error.
func (p *Process) Blame(err error) error {
	said, readErr := os.ReadFile(p.log)
	if readErr != nil {
		return fmt.Errorf("%w; %w", err, readErr)
	}
	const enough = 4000
	return fmt.Errorf("%w; it said:\n%s", err, said[max(0, len(said)-enough):])
}

// Stop ends the process and waits for it.
func (p *Process) Stop() {
	if err := p.cmd.Process.Kill(); err == nil {
		<-p.ended
	}
}

// Pause sleeps in the kernel. Go's own timers wake a process that has nothing else to do
// by the millisecond.
func Pause(d time.Duration) {
	request := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&request, nil) // a signal that ends it early does no harm
}
