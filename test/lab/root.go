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

// ReadFile returns the content of a file of this repository. path has the elements of its path.
func ReadFile(tb testing.TB, path ...string) []byte {
	tb.Helper()
	root, err := Root()
	Must(tb, err)
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	Must(tb, err)
	return text
}

// Root returns the root directory of this repository: the nearest one above the working directory, else the one
// from which this file was compiled.
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

// sourceDir returns the directory of this source file, or "" in a build with -trimpath.
func sourceDir() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return ""
	}
	return filepath.Dir(file)
}

// parent returns the directory above dir, or "" for the root of the file system.
func parent(dir string) string {
	if up := filepath.Dir(dir); up != dir {
		return up
	}
	return ""
}

// isRoot reports whether dir has the go.mod of modulePath. The repository contains other modules.
func isRoot(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && slices.Contains(strings.Split(string(data), "\n"), "module "+modulePath)
}

// labDir returns the directory in which the lab caches builds and downloads. It creates the directory if it does
// not exist.
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
		return "", fmt.Errorf("lab directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("creating the lab directory (set OOOI_LAB_DIR to use another one): %w", err)
	}
	return dir, nil
}
