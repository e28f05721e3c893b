package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/densityops/oooi"

// ReadFile reads a file of this repository, by the parts of its path.
func ReadFile(tb testing.TB, path ...string) []byte {
	tb.Helper()
	root, err := Root()
	if err != nil {
		tb.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// Root returns the root folder of this repository: the nearest one above the
// working directory, else the one that this file was compiled in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for _, start := range []string{dir, sourceDir()} {
		for dir := start; dir != ""; dir = parent(dir) {
			if isRoot(dir) {
				return dir, nil
			}
		}
	}
	return "", fmt.Errorf("finding the repository: no go.mod of %s in or above %s; run inside the checkout", modulePath, dir)
}

// sourceDir is the folder of this source file, or "" in a build with -trimpath.
func sourceDir() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return ""
	}
	return filepath.Dir(file)
}

// parent is the folder above dir, or "" above the root of the file system.
func parent(dir string) string {
	if up := filepath.Dir(dir); up != dir {
		return up
	}
	return ""
}

// isRoot looks at the module line, as the repository has modules within it.
func isRoot(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && slices.Contains(strings.Split(string(data), "\n"), "module "+modulePath)
}

// labDir is where the lab keeps what it builds, made if need be.
func labDir() (string, error) {
	dir := os.Getenv("OOOI_LAB_DIR")
	if dir == "" {
		root, err := Root()
		if err != nil {
			return "", errors.Join(err, errors.New("or set OOOI_LAB_DIR"))
		}
		dir = filepath.Join(root, ".lab")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("lab folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("making the lab folder (OOOI_LAB_DIR names another): %w", err)
	}
	return dir, nil
}
