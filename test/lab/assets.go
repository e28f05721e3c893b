package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// The components that a control plane consists of.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// Logf reports progress, one line per call. The zero value writes to standard error.
type Logf func(format string, args ...any)

func (f Logf) printf(format string, args ...any) {
	if f != nil {
		f(format, args...)
		return
	}
	fmt.Fprintf(os.Stderr, "lab: "+format+"\n", args...)
}

// FindTools returns an error that names each program that is not in PATH.
func FindTools(names ...string) error {
	var all []error
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			all = append(all, fmt.Errorf("%w: make deps installs it", err))
		}
	}
	return errors.Join(all...)
}

// Component returns the command that runs a component, such as etcd or kube-proxy, of the binary that Build returned.
func Component(binary, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...) //nolint:noctx // the process outlives contexts
	cmd.Args[0] = name                   // by which the binary selects the component
	// By default an API server spends a fifth of its time on garbage collection.
	cmd.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=1GiB")
	return cmd
}
