package lab

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ownPackages are the main packages of this repository that tests start, by the names of their
// binaries. The daemons have the race detector. The command-line tools do not: tests start them
// hundreds of times.
var (
	ownDaemons = map[string]string{"coredns": "./corednsbuild", "coredhcp": "./coredhcpbuild", "xdsd": "./xdsd"}
	ownTools   = map[string]string{"kubectl-oooi": "./kubectl-oooi", "mutant": "./kubectl-oooi/internal/mutate/mutant"}
)

// ownBuilt is an environment variable. It says that BuildOwn has run, as make test does once for
// all packages.
const ownBuilt = "OOOI_LAB_BUILT"

// Binary returns the path of one of this repository's binaries, up to date: coredns, coredhcp and
// xdsd with the race detector, kubectl-oooi and mutant without.
func Binary(tb testing.TB, name string) string {
	tb.Helper()
	path, err := ownBinary(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// ownBinary returns the path of a binary, after building it unless BuildOwn has run.
func ownBinary(ctx context.Context, name string) (string, error) {
	if os.Getenv(ownBuilt) == "" {
		if err := buildOwn(ctx, name); err != nil {
			return "", err
		}
	}
	return ownPath(name)
}

// ownPath is where a binary of this checkout is: others that have the same lab folder build theirs.
func ownPath(name string) (string, error) {
	dir, err := labDir()
	if err != nil {
		return "", err
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "own", CheckoutSum(root), name), nil
}

// CheckoutSum names the folder of a checkout's binaries in the lab's folder, by the checkout's path.
func CheckoutSum(root string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:8] }

// BuildOwn builds all binaries that Binary returns.
func BuildOwn(ctx context.Context, logf Logf) error {
	logf.printf("building our daemons with the race detector")
	for _, binaries := range []map[string]string{ownDaemons, ownTools} {
		for name := range binaries {
			if err := buildOwn(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// buildOwn builds one binary into the lab's folder. The go command does nothing where it is up to
// date.
func buildOwn(ctx context.Context, name string) error {
	dir, err := labDir()
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock-own"), nil)
	if err != nil {
		return err
	}
	defer unlock()
	path, err := ownPath(name)
	if err != nil {
		return err
	}
	if pkg, ok := ownTools[name]; ok {
		return goCommand(ctx, []string{"CGO_ENABLED=0"}, "build", "-trimpath", "-ldflags=-s -w", "-o", path, pkg)
	}
	pkg, ok := ownDaemons[name]
	if !ok {
		return fmt.Errorf("%s is no binary of this repository that the lab builds", name)
	}
	return goCommand(ctx, []string{"CGO_ENABLED=1"}, "build", "-trimpath", "-race", "-ldflags=-s -w", "-o", path, pkg)
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
