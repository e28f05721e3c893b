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

// Need returns an error that names the programs that are not there.
func Need(programs ...string) error {
	var all []error
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			all = append(all, fmt.Errorf("%s is missing; get it with: sudo make deps", filepath.Base(program)))
		}
	}
	return errors.Join(all...)
}

// binary is an environment variable with the path of the binary that is measured.
const binary = "OOOI_BENCH_BINARY"

// Prepare builds the binary that is measured, as make build does, and fetches what a Stage
// and these CRDs take: there is no way to in a network namespace.
func Prepare(ctx context.Context, pkg string, crds ...lab.CRDSet) error {
	path, noBinary := lab.BuildStatic(ctx, pkg)
	_, noAssets := lab.FindAssets(ctx, nil, "etcd", "kube-apiserver")
	_, noCRDs := lab.CRDs(ctx, crds...)
	return errors.Join(noBinary, noAssets, noCRDs, os.Setenv(binary, path))
}

// Binary is the path of what Prepare built, in this process or the one that started it.
func Binary() string { return os.Getenv(binary) }

// A Stage is what a benchmark takes place on.
type Stage struct {
	Dir        string // for everything that is written
	Management *lab.ControlPlane
}

// NewStage makes a folder in another one, by default that of temporary files, and starts an
// API server.
func NewStage(ctx context.Context, parent string, config lab.Config) (*Stage, error) {
	dir, err := os.MkdirTemp(parent, "oooi-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a work folder: %w", err)
	}
	config.Name, config.Dir = "bench", filepath.Join(dir, "management")
	management, err := lab.Start(ctx, config)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &Stage{dir, management}, nil
}

// Close stops the API server, and removes the folder.
func (s *Stage) Close() error { return errors.Join(s.Management.Stop(), os.RemoveAll(s.Dir)) }

// Fill makes objects in the API server, by their numbers, several at once.
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
