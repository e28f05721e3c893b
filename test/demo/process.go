package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A process is a daemon that the demo has started.
type process struct {
	log   string // path of the file with its output
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has exited and err is set
	err   error
}

// startProcess starts a program that logs to the file NAME.log in dir. The caller must stop it.
func startProcess(dir, name, binary string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("creating the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()                                                             // the program has a descriptor of its own
	p := &process{log: log.Name(), cmd: exec.Command(binary, args...), ended: make(chan struct{})} //nolint:noctx // stop kills it
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// The kernel kills it when the demo exits. It has its own process group, so that Ctrl-C at the terminal does not
	// interrupt it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// withLog adds the output of the process to an error.
func (p *process) withLog(err error) error {
	text, readErr := os.ReadFile(p.log)
	if readErr != nil {
		return fmt.Errorf("%w; %w", err, readErr)
	}
	return fmt.Errorf("%w; output of %s:\n%s", err, p.cmd.Path, text)
}

// stop kills the process and waits until it has exited.
func (p *process) stop() {
	if err := p.cmd.Process.Kill(); err == nil {
		<-p.ended
	}
}
