package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// vmProgram runs a command on the machine, which has a resolver of its own; without a command,
// a shell.
const vmProgram = `#!/bin/sh
exec nsenter --net=%s unshare --mount sh -c 'mount --bind %s/resolv.conf /etc/resolv.conf && exec "$@"' vm "${@:-bash}"
`

// promptRC is what the shell of a person reads at first. It needs a kubectl for kubectl oooi.
const promptRC = `PS1='oooi demo$ '
command -v kubectl >/dev/null || alias oooi=kubectl-oooi
`

// program is the path of one of those that a person can call by their names.
func (s *site) program(name string) string { return filepath.Join(s.dir, "bin", name) }

// writePrograms makes them.
func (s *site) writePrograms(oooi string) error {
	oooi, err := filepath.Abs(oooi)
	if err != nil {
		return fmt.Errorf("finding kubectl-oooi: %w", err)
	}
	if err := os.Mkdir(s.program(""), 0o700); err != nil {
		return fmt.Errorf("making a folder for programs: %w", err)
	}
	if err := os.Symlink(oooi, s.program("kubectl-oooi")); err != nil {
		return fmt.Errorf("installing kubectl-oooi: %w", err)
	}
	if err := os.WriteFile(s.program("vm"), fmt.Appendf(nil, vmProgram, s.vm.Path(), s.vm.dir), 0o700); err != nil {
		return fmt.Errorf("writing a program: %w", err)
	}
	if err := os.WriteFile(s.program("bashrc"), []byte(promptRC), 0o600); err != nil {
		return fmt.Errorf("writing what the shell reads: %w", err)
	}
	return nil
}

// command makes a command as a person would run it: among the demo's files, as an administrator
// of the management cluster.
func (s *site) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if _, err := os.Stat(s.program(name)); err == nil {
		name = s.program(name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.management.Kubeconfig(), "PATH="+s.program("")+":"+os.Getenv("PATH"))
	return cmd
}

// prompt gives a person a shell, and returns when he leaves it.
func (s *site) prompt(ctx context.Context, t *transcript) error {
	oooi := "oooi" // as promptRC has it
	if _, err := exec.LookPath("kubectl"); err == nil {
		oooi = "kubectl oooi"
	}
	t.printf(`
It all runs on until you leave this shell. Try:

  %[1]s status demo -n clusters
  %[1]s resolve %[2]s
  vm dig %[2]s
  vm curl --cacert shop.crt https://%[2]s/

vm runs a command on the machine, and alone a shell there. Another terminal gets there with

  nsenter --net=%[3]s

and to the API server of the management cluster with

  nsenter --net=/proc/%[4]d/ns/net env KUBECONFIG=%[5]s bash

`, oooi, shopName, s.vm.Path(), os.Getpid(), s.management.Kubeconfig())
	shell := s.command(ctx, "bash", "--rcfile", s.program("bashrc"), "-i")
	shell.Stdin, shell.Stdout, shell.Stderr = os.Stdin, os.Stdout, os.Stderr
	shell.Cancel = func() error { return shell.Process.Signal(syscall.SIGHUP) } // as when the terminal goes
	shell.WaitDelay = 5 * time.Second
	err := shell.Run()
	if shell.ProcessState == nil {
		return fmt.Errorf("starting a shell: %w", err)
	}
	t.printf("\nended\n")
	return nil // how its last command fared is its own
}
