package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/densityops/oooi/test/lab"
)

//go:embed objects/*.yaml
var objects embed.FS

// startManagement starts a management cluster's API server with the real CRDs and
// the objects of two hosted clusters.
func startManagement(ctx context.Context, dir string) (*lab.ControlPlane, error) {
	start := time.Now()
	cp, err := lab.Start(ctx, lab.Config{Name: "management", Dir: dir, ServiceCIDR: "10.96.0.0/16,fd00:96::/108"})
	if err != nil {
		return nil, err
	}
	err = cp.InstallCRDs(ctx, lab.HyperShift, lab.OpenShiftRoute, lab.Oooi)
	if err == nil {
		err = applyObjects(ctx, cp)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; stopping: %w", err, cp.Stop())
	}
	progress("management cluster with HyperShift's CRDs, 2 hosted clusters and 2 Infras: %.1f s", time.Since(start).Seconds())
	return cp, nil
}

func applyObjects(ctx context.Context, cp *lab.ControlPlane) error {
	return fs.WalkDir(objects, "objects", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := objects.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		if err := cp.ApplyYAML(ctx, content); err != nil {
			return fmt.Errorf("applying %s: %w", path, err)
		}
		return nil
	})
}

// progress tells of what takes time. It goes to standard error, the transcript to
// standard output.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
