package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestKubebuilderAssets(t *testing.T) {
	binary, err := Build(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	if _, err := FindAssets(t.Context(), t.Logf, etcd, apiServer); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("FindAssets with an empty folder: got error %v", err)
	}
	for _, name := range []string{etcd, apiServer} {
		if err := os.Symlink(binary, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cp := New(t, Config{Name: "assets"})
	if path := cp.apiServer.cmd.Path; filepath.Dir(path) != dir {
		t.Errorf("the API server is %s", path)
	}
	// setup-envtest installs no controller manager.
	assets, err := FindAssets(t.Context(), t.Logf, etcd, apiServer, controllerManager)
	if err != nil {
		t.Fatal(err)
	}
	if path := assets.Command(controllerManager).Path; path != binary {
		t.Errorf("the controller manager is %s", path)
	}
}

func TestSourceSum(t *testing.T) {
	dir := t.TempDir()
	sums := map[string]bool{}
	sum := func(args ...string) string {
		t.Helper()
		s, err := sourceSum(dir, append(args, "./"))
		if err != nil {
			t.Fatal(err)
		}
		sums[s] = true
		return s
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sourceSum(dir, []string{"./"}); err == nil {
		t.Error("no error without source")
	}
	write("go.mod", "module x\n")
	write("go.sum", "")
	first := sum()
	sum("-race")
	write("main.go", "package main\n")
	sum()
	write("go.sum", "x\n")
	last := sum()
	if len(sums) != 4 {
		t.Errorf("%d different sums, want 4", len(sums))
	}

	binary := filepath.Join(dir, "binary")
	if upToDate(binary, last) {
		t.Error("up to date without a binary")
	}
	write("binary", "")
	if err := replaceFile(binary+".sum", []byte(last)); err != nil {
		t.Fatal(err)
	}
	if !upToDate(binary, last) || upToDate(binary, first) {
		t.Error("upToDate ignores the sum file")
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path, t.Logf); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), path) {
		t.Errorf("a lock that is held: got error %v", err)
	}
	unlock()
	unlock, err = lock(t.Context(), path, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestBuildFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\nfunc main() { oops }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := goBuild(t.Context(), dir, filepath.Join(dir, "binary"), t.Logf, ".")
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got error %v", err)
	}
}
