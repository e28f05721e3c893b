package atomicfile_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/densityops/oooi/internal/atomicfile"
	"github.com/densityops/oooi/test/lab"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"first", "the second, which is longer", "third"} {
		lab.Must(t, atomicfile.Replace(path, []byte(text)))
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
	lab.Must(t, os.MkdirAll(filepath.Join(folder, "inside"), 0o700))
	for _, path := range []string{folder, filepath.Join(dir, "missing", "file")} {
		if err := atomicfile.Replace(path, []byte("text")); err == nil {
			t.Errorf("%s was replaced", path)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("folder contains %v, %v; want no temporary file", list, err)
	}
}

// TestOnlyRegularFilesAreReplacedAndRead uses a FIFO in place of a device, because only root can create
// devices.
func TestOnlyRegularFilesAreReplacedAndRead(t *testing.T) {
	dir := t.TempDir()
	pathOf := func(name string) string { return filepath.Join(dir, name) }
	lab.Must(t, os.WriteFile(pathOf("file"), []byte("old"), 0o600))
	lab.Must(t, syscall.Mkfifo(pathOf("fifo"), 0o600))
	lab.Must(t, os.Mkdir(pathOf("folder"), 0o700))
	for link, target := range map[string]string{"link": "file", "dangling": "none"} {
		lab.Must(t, os.Symlink(target, pathOf(link)))
	}
	for _, name := range []string{"fifo", "folder", "dangling"} {
		before, err := os.Lstat(pathOf(name))
		lab.Must(t, err)
		if err := atomicfile.Replace(pathOf(name), []byte("new")); err == nil {
			t.Errorf("%s was replaced", name)
		}
		if _, err := atomicfile.Read(pathOf(name)); err == nil {
			t.Errorf("%s was read", name)
		}
		if after, err := os.Lstat(pathOf(name)); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s changed from mode %s to %v: %v", name, before.Mode(), after, err)
		}
	}
	lab.Must(t, atomicfile.Replace(pathOf("link"), []byte("new")))
	if info, err := os.Lstat(pathOf("link")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the symbolic link is %v: %v", info, err)
	}
	if content, err := atomicfile.Read(pathOf("file")); err != nil || string(content) != "new" {
		t.Errorf("the target of the link has content %q: %v", content, err)
	}
	lab.Must(t, os.Truncate(pathOf("file"), 1<<30))
	if _, err := atomicfile.Read(pathOf("file")); err == nil {
		t.Error("a file of 1 GiB was read")
	}
}

func TestSetAside(t *testing.T) {
	for _, tc := range []struct {
		name     string
		earlier  string // content of an earlier PATH.unusable
		readable bool   // whether the file could be read
	}{
		{name: "first unusable file", readable: true},
		{name: "second unusable file", earlier: "old", readable: true},
		{name: "file that cannot be read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.json")
			aside := path + ".unusable"
			for name, content := range map[string]string{path: "bad", aside: tc.earlier} {
				if content == "" {
					continue
				}
				lab.Must(t, os.WriteFile(name, []byte(content), 0o600))
			}
			why := errors.New("decoding: unexpected end")
			if !tc.readable {
				why = fmt.Errorf("reading: %w", &os.PathError{Op: "read", Path: path, Err: os.ErrPermission})
			}
			var log strings.Builder
			atomicfile.SetAside(slog.New(slog.NewTextHandler(&log, nil)), path, why)
			if !strings.Contains(log.String(), path) || !strings.Contains(log.String(), why.Error()) {
				t.Errorf("the log does not name the file and the reason: %s", &log)
			}
			kept := path
			if tc.readable {
				kept = aside
			}
			if content, err := os.ReadFile(kept); err != nil || string(content) != "bad" {
				t.Errorf("%s has %q: %v", kept, content, err)
			}
		})
	}
}
