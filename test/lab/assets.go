package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// The components that a control plane consists of.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// components returns the components of a control plane with this configuration.
func (c Config) components() []string {
	list := []string{etcd, apiServer}
	if c.ControllerManager {
		list = append(list, controllerManager)
	}
	if c.Scheduler {
		list = append(list, scheduler)
	}
	return list
}

// Logf reports progress, one line per call. The zero value writes to standard error.
type Logf func(format string, args ...any)

func (f Logf) printf(format string, args ...any) {
	if f != nil {
		f(format, args...)
		return
	}
	fmt.Fprintf(os.Stderr, "lab: "+format+"\n", args...)
}

// Assets locates the binaries of Kubernetes components and etcd.
type Assets struct {
	dir       string // a folder with a binary for each component; if empty, multicall is used
	multicall string // one binary that contains all components
}

// FindAssets finds the binaries of the named components (kube-apiserver, etcd, kubelet, ...). It uses the
// folder KUBEBUILDER_ASSETS if that has all of them, and otherwise one binary built from
// test/programs/controlplane, which takes minutes the first time.
func FindAssets(ctx context.Context, logf Logf, components ...string) (Assets, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		missing, err := missingIn(dir, components)
		if err != nil {
			return Assets{}, err
		}
		if missing == "" {
			return Assets{dir: dir}, nil
		}
		logf.printf("KUBEBUILDER_ASSETS has no %s; using the binary built from test/programs/controlplane for all components", missing)
	}
	path, err := Build(ctx, logf)
	if err != nil {
		return Assets{}, err
	}
	return Assets{multicall: path}, nil
}

// missingIn returns the first component that dir lacks, or "". It is an error if etcd or the API server is
// missing; the other components are missing from every folder of setup-envtest.
func missingIn(dir string, components []string) (string, error) {
	for _, c := range components {
		path := filepath.Join(dir, c)
		_, err := os.Stat(path)
		switch {
		case err == nil:
		case c == etcd || c == apiServer:
			return "", fmt.Errorf("KUBEBUILDER_ASSETS has no %s: %w; unset it to use binaries built from test/programs/controlplane", c, err)
		default:
			return c, nil
		}
	}
	return "", nil
}

// commandLine returns the command line of a component for callers that cannot set argv[0], as Command does.
func (a Assets) commandLine(component string, args ...string) []string {
	if a.multicall != "" {
		return append([]string{a.multicall, component}, args...)
	}
	return append([]string{filepath.Join(a.dir, component)}, args...)
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

// Command returns the command that runs a component with args.
func (a Assets) Command(component string, args ...string) *exec.Cmd {
	path := a.multicall
	if path == "" {
		path = filepath.Join(a.dir, component)
	}
	cmd := exec.Command(path, args...) //nolint:noctx // the process outlives contexts
	cmd.Args[0] = component            // the multicall binary selects the component by argv[0]
	// By default an API server spends a fifth of its time on garbage collection.
	cmd.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=1GiB")
	return cmd
}
