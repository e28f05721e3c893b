package dhcp

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// process is a server that is measured.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it has ended, with err set
	err   error
}

// run starts a server. What it says is kept in its folder.
func run(ctx context.Context, name, dir string, env []string, command string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.CommandContext(ctx, command, args...), log: filepath.Join(dir, "log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has it, too
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// alive fails if the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %w", p.name, p.err)
	default:
		return nil
	}
}

// said returns the end of the log.
func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const enough = 4000
	return string(text[max(0, len(text)-enough):])
}

// stop ends the process and waits for it.
func (p *process) stop() {
	if err := p.cmd.Process.Kill(); err == nil {
		<-p.ended
	}
}
