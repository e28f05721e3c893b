package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// process is a server of ours that runs beside the demo.
type process struct {
	log   string // the file that it writes to
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended, with err set
	err   error
}

// startProcess starts a program that logs to a file in dir. The caller stops it.
func startProcess(dir, name, binary string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("making the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()                                                             // the program has its own
	p := &process{log: log.Name(), cmd: exec.Command(binary, args...), ended: make(chan struct{})} //nolint:noctx // stop ends it
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// It ends with the demo, and not before: a terminal's Ctrl-C is not for it.
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

// blame adds what the process has said to an error.
func (p *process) blame(err error) error {
	said, readErr := os.ReadFile(p.log)
	if readErr != nil {
		return fmt.Errorf("%w; %w", err, readErr)
	}
	return fmt.Errorf("%w; %s said:\n%s", err, p.cmd.Path, said)
}

// stop ends the process and waits for it.
func (p *process) stop() {
	if err := p.cmd.Process.Kill(); err == nil {
		<-p.ended
	}
}
