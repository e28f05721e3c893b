package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/densityops/oooi/internal/atomicfile"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"first", "the second, which is longer", "third"} {
		if err := atomicfile.Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v, %v", info, err)
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		t.Errorf("folder contains %v, %v; want only the file", list, err)
	}
}

func TestFailedReplaceChangesNothing(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder") // cannot be replaced by a file
	if err := os.MkdirAll(filepath.Join(folder, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, filepath.Join(dir, "missing", "file")} {
		if err := atomicfile.Replace(path, []byte("text")); err == nil {
			t.Errorf("%s was replaced", path)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("folder contains %v, %v; want no temporary file", list, err)
	}
}
