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

// isolatedMark is in the environment of a demo that runs in a network namespace of
// its own. There, pods and load balancers can have addresses, which real API servers
// refuse if they are loopback's, and no traffic gets out.
const isolatedMark = "OOOI_DEMO_ISOLATED"

// What isolatedMark says: made by root, or by a user.
const markRoot, markUser = "root", "user"

func isolated() bool { return os.Getenv(isolatedMark) != "" }

// attributes are those of a process in a network namespace of its own, made by root or by
// a user. It dies with us.
func attributes(asUser bool) *syscall.SysProcAttr {
	a := lab.NetworkNamespace(asUser)
	a.Pdeathsig = syscall.SIGTERM
	return a
}

// possible returns whether a network namespace that one may set up is made as a user. Some
// systems let a user make one, and then nothing in it.
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

// isolate runs the demo again in a network namespace of its own, to its end.
func isolate(ctx context.Context, o options, asUser bool) error {
	if err := prepare(ctx, o); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(os.Args[1:], "-mode="+o.mode.String())...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // a terminal has told it already
	cmd.WaitDelay = time.Minute
	mark := markRoot
	if asUser {
		mark = markUser
	}
	cmd.Env = append(os.Environ(), isolatedMark+"="+mark, lab.InsideNetwork())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes(asUser)
	err := cmd.Run()
	if cmd.ProcessState == nil || !cmd.ProcessState.Exited() {
		return err
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return exitError(code)
	}
	return nil // whether it was told to end or not
}

// exitError is the exit code of the demo in the namespace.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// prepare fetches what cannot be fetched from inside the namespace.
func prepare(ctx context.Context, o options) error {
	for _, module := range []string{"github.com/openshift/hypershift", "github.com/openshift/api", "go.universe.tf/metallb", "kubevirt.io/kubevirt"} {
		if _, err := lab.ModuleDir(ctx, module); err != nil {
			return err
		}
	}
	if _, err := lab.FindAssets(ctx, nil, "etcd", "kube-apiserver"); err != nil {
		return err
	}
	for _, get := range []func(context.Context, lab.Logf) (string, error){lab.BuildMetalLB, lab.InstallEnvoy} {
		if _, err := get(ctx, nil); err != nil {
			return err
		}
	}
	if o.mode != onNode {
		return nil
	}
	return prepareNode(ctx, o)
}

// enter is how another terminal gets into a network namespace that a file stands for.
func enter(path string) string {
	command := "nsenter --net=" + path
	if os.Getenv(isolatedMark) == markUser {
		command += fmt.Sprintf(" --target %d --user --preserve-credentials", os.Getpid())
	}
	return command
}
