package lab

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildBinary builds a main package of this repository, such as ./xdsd, to a path. Tests
// with the race detector get a binary with the race detector.
func BuildBinary(ctx context.Context, path, pkg string) error {
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	return goCommand(ctx, nil, append(args, pkg)...)
}

func goCommand(ctx context.Context, env []string, args ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", args...)
	build.Dir = root
	build.Env = append(os.Environ(), env...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	return nil
}

// LookAt has the go command see what a test tests and does not import, by folders of this
// repository: it keeps the result of a test for as long as nothing changes that the test
// looked at.
func LookAt(dirs ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		look := func(_ string, _ fs.DirEntry, err error) error { return err }
		if err := filepath.WalkDir(filepath.Join(root, dir), look); err != nil {
			return fmt.Errorf("looking at the sources: %w", err)
		}
	}
	return nil
}
