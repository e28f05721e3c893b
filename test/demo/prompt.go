package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// program returns the path of a program in the directory that the shell has in its PATH.
func (n *nodeShow) program(name string) string { return filepath.Join(n.dir, "bin", name) }

// writePrograms writes the programs that the shell has in its PATH, and its rcfile, which without kubectl defines oooi as an
// alias of the plugin. vm runs a command, or a shell without one, in the VM, with the VM's resolv.conf.
func (n *nodeShow) writePrograms() {
	oooi, err := filepath.Abs(n.options.oooi)
	n.check(err)
	n.check(os.Mkdir(n.program(""), 0o700))
	n.check(os.Symlink(oooi, n.program("kubectl-oooi")))
	n.write("bin/vm", "#!/bin/sh\nexec nsenter --net="+n.machine.Path()+" unshare --mount sh -c 'mount --bind "+n.machine.Dir+
		"/resolv.conf /etc/resolv.conf && exec \"$@\"' vm \"${@:-bash}\"\n")
	n.check(os.Chmod(n.program("vm"), 0o700))
	n.write("bin/bashrc", "PS1='oooi demo$ '\ncommand -v kubectl >/dev/null || alias oooi=kubectl-oooi\n")
}

// command returns a command that runs in the working directory, with the admin kubeconfig of the management cluster.
func (n *nodeShow) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+n.management.Kubeconfig(), "PATH="+n.program("")+":"+os.Getenv("PATH"))
	return cmd
}

// prompt starts an interactive shell, and returns when the user leaves it.
func (n *nodeShow) prompt() {
	oooi := "oooi" // the alias in the rcfile
	if _, err := exec.LookPath("kubectl"); err == nil {
		oooi = "kubectl oooi"
	}
	n.printf(`
Everything keeps running until you leave this shell. Try:

  %[1]s status demo -n clusters
  %[1]s resolve %[2]s
  vm dig %[2]s
  vm curl --cacert shop.crt https://%[2]s/

vm runs a command in the VM, or a shell without a command. To enter the VM from another terminal:

  nsenter --net=%[3]s

To use the API server of the management cluster from another terminal:

  nsenter --net=/proc/%[4]s/ns/net env KUBECONFIG=%[5]s bash

`, oooi, shopName, n.machine.Path(), strconv.Itoa(os.Getpid()), n.management.Kubeconfig())
	shell := n.command(n.ctx, "bash", "--rcfile", n.program("bashrc"), "-i")
	shell.Stdin, shell.Stdout, shell.Stderr = os.Stdin, os.Stdout, os.Stderr
	shell.Cancel = func() error { return shell.Process.Signal(syscall.SIGHUP) } // as when the terminal is closed
	shell.WaitDelay = 5 * time.Second
	if err := shell.Run(); shell.ProcessState == nil { // the exit code of the user's last command does not matter
		n.check(err)
	}
	n.printf("\nended\n")
}
