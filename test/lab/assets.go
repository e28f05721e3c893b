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

// components are those of a control plane with this configuration.
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

// Logf reports progress, one line a call. The zero value writes to standard
// error.
type Logf func(format string, args ...any)

func (f Logf) printf(format string, args ...any) {
	if f != nil {
		f(format, args...)
		return
	}
	fmt.Fprintf(os.Stderr, "lab: "+format+"\n", args...)
}

// Assets are the binaries of Kubernetes components and etcd.
type Assets struct {
	dir       string // a folder with a binary for each component, or
	multicall string // one binary that is all of them
}

// FindAssets finds the binaries of the named components (kube-apiserver, etcd,
// kubelet, ...): in the folder that KUBEBUILDER_ASSETS names if it is set and
// has them all, else in one binary built from test/programs/controlplane, which takes
// minutes the first time.
func FindAssets(ctx context.Context, logf Logf, components ...string) (Assets, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		missing, err := missingIn(dir, components)
		if err != nil {
			return Assets{}, err
		}
		if missing == "" {
			return Assets{dir: dir}, nil
		}
		logf.printf("KUBEBUILDER_ASSETS has no %s: using our own binaries for all", missing)
	}
	path, err := Build(ctx, logf)
	if err != nil {
		return Assets{}, err
	}
	return Assets{multicall: path}, nil
}

// missingIn names a component that dir lacks. A folder without even etcd and
// the API server is a mistake; one without the others is what envtest has.
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

// commandLine is what Command runs, where argv[0] cannot say which component it is.
func (a Assets) commandLine(component string, args ...string) []string {
	if a.multicall != "" {
		return append([]string{a.multicall, component}, args...)
	}
	return append([]string{filepath.Join(a.dir, component)}, args...)
}

// FindTools returns an error that names the programs that are not installed.
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
	cmd := exec.Command(path, args...) //nolint:noctx // it outlives contexts
	cmd.Args[0] = component            // how the one binary knows which it is
	// An API server spends a fifth of its time on garbage collection, unless it may use more memory.
	cmd.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=1GiB")
	return cmd
}
