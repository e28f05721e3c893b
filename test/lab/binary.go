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

// The main packages of this repository that tests start, by the names of their binaries. The daemons have the
// race detector. The command-line tools have not, because tests start them hundreds of times.
var (
	ownDaemons = map[string]string{"coredns": "./corednsbuild", "coredhcp": "./coredhcpbuild", "xdsd": "./xdsd"}
	ownTools   = map[string]string{"kubectl-oooi": "./kubectl-oooi"}
)

// ownBuilt is an environment variable that is set after BuildOwn has run. make test runs it once for all
// packages.
const ownBuilt = "OOOI_LAB_BUILT"

// Binary returns the path of an up-to-date binary of this repository: coredns, coredhcp and xdsd with the
// race detector, kubectl-oooi without.
func Binary(tb testing.TB, name string) string {
	tb.Helper()
	path, err := ownBinary(tb.Context(), name)
	Must(tb, err)
	return path
}

// ownBinary returns the path of a binary. It builds the binary unless BuildOwn has run.
func ownBinary(ctx context.Context, name string) (string, error) {
	if os.Getenv(ownBuilt) == "" {
		if err := buildOwn(ctx, name); err != nil {
			return "", err
		}
	}
	return ownPath(name)
}

// ownPath returns the path of a binary. Checkouts that share a lab directory have separate binaries.
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

// CheckoutSum returns the name of the directory in the lab's directory with the binaries of the checkout at root.
func CheckoutSum(root string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:8] }

// BuildOwn builds all binaries that Binary returns.
func BuildOwn(ctx context.Context, logf Logf) error {
	logf.printf("building oooi's daemons with the race detector")
	for _, binaries := range []map[string]string{ownDaemons, ownTools} {
		for name := range binaries {
			if err := buildOwn(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// buildOwn builds one binary into the lab's folder. The go command does nothing if the binary is up to date.
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
	pkg, ok := ownDaemons[name]
	tool, isTool := ownTools[name]
	switch {
	case isTool:
		pkg = tool
	case !ok:
		return fmt.Errorf("%s is not a binary that the lab builds", name)
	}
	if isTool || os.Getenv("OOOI_LAB_NO_RACE") != "" { // the race detector multiplies memory and CPU time
		return goCommand(ctx, []string{"CGO_ENABLED=0"}, buildFlags("-ldflags=-s -w", "-o", path, pkg)...)
	}
	return goCommand(ctx, []string{"CGO_ENABLED=1"}, buildFlags("-race", "-ldflags=-s -w", "-o", path, pkg)...)
}

func goCommand(ctx context.Context, env []string, args ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", args...)
	build.Dir = root
	build.Env = append(os.Environ(), env...)
	return runCommand(build)
}

// TrackSources walks directories of this repository, so that the go command includes them in the inputs of the
// test's cached result. It is for sources that a test uses and does not import.
func TrackSources(dirs ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		visit := func(_ string, _ fs.DirEntry, err error) error { return err }
		if err := filepath.WalkDir(filepath.Join(root, dir), visit); err != nil {
			return fmt.Errorf("walking the sources: %w", err)
		}
	}
	return nil
}
