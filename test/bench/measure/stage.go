package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/densityops/oooi/test/lab"
)

// Need returns an error that names all programs that are not installed.
func Need(programs ...string) error {
	var all []error
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			all = append(all, fmt.Errorf("%s is not installed; install it with: sudo make deps", filepath.Base(program)))
		}
	}
	return errors.Join(all...)
}

// binaryVariable is the environment variable with the path of the measured binary.
const binaryVariable = "OOOI_BENCH_BINARY"

// Prepare builds the measured binary as make build does, and downloads the programs and CRDs of a Stage, which is not
// possible in a network namespace.
func Prepare(ctx context.Context, pkg string, crds ...lab.CRDSet) error {
	path, buildErr := lab.BuildStatic(ctx, pkg)
	_, assetsErr := lab.Build(ctx, nil)
	_, crdsErr := lab.CRDs(ctx, crds...)
	return errors.Join(buildErr, assetsErr, crdsErr, os.Setenv(binaryVariable, path))
}

// Binary returns the path of the binary that Prepare built, in this process or its parent.
func Binary() string { return os.Getenv(binaryVariable) }

// A Stage is a work folder and an API server, as every benchmark needs.
type Stage struct {
	Dir        string // work folder, deleted by Close
	Management *lab.ControlPlane
}

// NewStage creates a work folder in parent, by default in the folder of temporary files, and starts an API server.
func NewStage(ctx context.Context, parent string, config lab.Config) (*Stage, error) {
	dir, err := os.MkdirTemp(parent, "oooi-bench-")
	if err != nil {
		return nil, fmt.Errorf("creating a work folder: %w", err)
	}
	config.Name, config.Dir = "bench", filepath.Join(dir, "management")
	management, err := lab.Start(ctx, config)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &Stage{dir, management}, nil
}

// Close stops the API server and deletes the work folder.
func (s *Stage) Close() error { return errors.Join(s.Management.Stop(), os.RemoveAll(s.Dir)) }

// Fill calls create for each number in [from, to), concurrently. It stops at the first error, or when ctx
// ends, and returns that error.
func Fill(ctx context.Context, from, to int, create func(ctx context.Context, number int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var group sync.WaitGroup
	for range 4 * runtime.NumCPU() {
		group.Go(func() {
			for number := range next {
				if err := create(ctx, number); err != nil {
					cancel(err)
				}
			}
		})
	}
	for number := from; number < to && ctx.Err() == nil; number++ {
		next <- number
	}
	close(next)
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("filling the API server: %w", err)
	}
	return nil
}
