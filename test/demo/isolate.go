package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// isolatedEnv is the environment variable of a demo that runs in a network namespace of its own. There, pods and load
// balancers can have addresses that are not loopback addresses, which API servers reject, and no traffic leaves the
// host.
const isolatedEnv = "OOOI_DEMO_ISOLATED"

// Values of isolatedEnv: who created the namespace.
const createdByRoot, createdByUser = "root", "user"

// isolated reports whether this process runs in the network namespace.
func isolated() bool { return os.Getenv(isolatedEnv) != "" }

// attributes returns the attributes of a process in a new network namespace, created by root or as a user. The
// process gets SIGTERM when this one exits.
func attributes(asUser bool) *syscall.SysProcAttr {
	a := lab.NetworkNamespace(asUser)
	a.Pdeathsig = syscall.SIGTERM
	return a
}

// possible returns whether a usable network namespace must be created as a user, or an error if neither way works. It
// configures an interface in it, because some systems let users create a namespace, but configure nothing in it.
func possible(ctx context.Context) (asUser bool, err error) {
	for _, asUser := range []bool{false, true} {
		probe := exec.CommandContext(ctx, "ip", "link", "set", "lo", "up")
		probe.SysProcAttr = attributes(asUser)
		out, failure := probe.CombinedOutput()
		if failure == nil {
			return asUser, nil
		}
		err = fmt.Errorf("%w %s", failure, strings.TrimSpace(string(out)))
	}
	return false, err
}

// isolate runs the demo again in a new network namespace, and waits until it exits.
func isolate(ctx context.Context, o options, asUser bool) error {
	if err := prepare(ctx, o); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(os.Args[1:], "-mode="+o.mode.String())...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // Ctrl-C at a terminal has interrupted it already
	cmd.WaitDelay = time.Minute
	createdBy := createdByRoot
	if asUser {
		createdBy = createdByUser
	}
	cmd.Env = append(os.Environ(), isolatedEnv+"="+createdBy, lab.InsideNetwork())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes(asUser)
	err := cmd.Run()
	if cmd.ProcessState == nil || !cmd.ProcessState.Exited() {
		return err
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return exitError(code)
	}
	return nil // even if it was interrupted
}

// An exitError is the exit code of the demo in the namespace.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// prepare downloads and builds everything that needs the network, which the namespace does not have.
func prepare(ctx context.Context, o options) error {
	for _, module := range []string{"github.com/openshift/hypershift", "github.com/openshift/api", "go.universe.tf/metallb", "kubevirt.io/kubevirt"} {
		if _, err := lab.ModuleDir(ctx, module); err != nil {
			return err
		}
	}
	for _, get := range []func(context.Context, lab.Logf) (string, error){lab.Build, lab.BuildMetalLB, lab.InstallEnvoy} {
		if _, err := get(ctx, nil); err != nil {
			return err
		}
	}
	if o.mode != onNode {
		return nil
	}
	return prepareNode(ctx, o)
}

// nsenterCommand returns the command that enters the network namespace of a file from another terminal.
func nsenterCommand(path string) string {
	command := "nsenter --net=" + path
	if os.Getenv(isolatedEnv) == createdByUser {
		command += fmt.Sprintf(" --target %d --user --preserve-credentials", os.Getpid())
	}
	return command
}
