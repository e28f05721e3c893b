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

// vmProgram runs a command, or a shell without one, in the VM, with the VM's resolv.conf.
const vmProgram = `#!/bin/sh
exec nsenter --net=%s unshare --mount sh -c 'mount --bind %s/resolv.conf /etc/resolv.conf && exec "$@"' vm "${@:-bash}"
`

// promptRC is the rcfile of the user's shell. Without kubectl it defines oooi as an alias of the plugin.
const promptRC = `PS1='oooi demo$ '
command -v kubectl >/dev/null || alias oooi=kubectl-oooi
`

// program returns the path of a program in the directory that the shell has in its PATH.
func (s *site) program(name string) string { return filepath.Join(s.dir, "bin", name) }

// writePrograms writes the programs that the shell has in its PATH.
func (s *site) writePrograms(oooi string) error {
	oooi, err := filepath.Abs(oooi)
	if err != nil {
		return fmt.Errorf("finding kubectl-oooi: %w", err)
	}
	if err := os.Mkdir(s.program(""), 0o700); err != nil {
		return fmt.Errorf("creating a directory for programs: %w", err)
	}
	if err := os.Symlink(oooi, s.program("kubectl-oooi")); err != nil {
		return fmt.Errorf("installing kubectl-oooi: %w", err)
	}
	if err := os.WriteFile(s.program("vm"), fmt.Appendf(nil, vmProgram, s.vm.Path(), s.vm.dir), 0o700); err != nil {
		return fmt.Errorf("writing the program vm: %w", err)
	}
	if err := os.WriteFile(s.program("bashrc"), []byte(promptRC), 0o600); err != nil {
		return fmt.Errorf("writing the rcfile of the shell: %w", err)
	}
	return nil
}

// command returns a command that runs in the working directory, with the admin kubeconfig of the management cluster.
func (s *site) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if _, err := os.Stat(s.program(name)); err == nil {
		name = s.program(name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.management.Kubeconfig(), "PATH="+s.program("")+":"+os.Getenv("PATH"))
	return cmd
}

// prompt starts an interactive shell, and returns when the user leaves it.
func (s *site) prompt(ctx context.Context, t *transcript) error {
	oooi := "oooi" // the alias in promptRC
	if _, err := exec.LookPath("kubectl"); err == nil {
		oooi = "kubectl oooi"
	}
	t.printf(`
Everything keeps running until you leave this shell. Try:

  %[1]s status demo -n clusters
  %[1]s resolve %[2]s
  vm dig %[2]s
  vm curl --cacert shop.crt https://%[2]s/

vm runs a command in the VM, or a shell without a command. To enter the VM from another terminal:

  nsenter --net=%[3]s

To use the API server of the management cluster from another terminal:

  nsenter --net=/proc/%[4]d/ns/net env KUBECONFIG=%[5]s bash

`, oooi, shopName, s.vm.Path(), os.Getpid(), s.management.Kubeconfig())
	shell := s.command(ctx, "bash", "--rcfile", s.program("bashrc"), "-i")
	shell.Stdin, shell.Stdout, shell.Stderr = os.Stdin, os.Stdout, os.Stderr
	shell.Cancel = func() error { return shell.Process.Signal(syscall.SIGHUP) } // as when the terminal is closed
	shell.WaitDelay = 5 * time.Second
	err := shell.Run()
	if shell.ProcessState == nil {
		return fmt.Errorf("starting a shell: %w", err)
	}
	t.printf("\nended\n")
	return nil // the exit code of the user's last command does not matter
}
