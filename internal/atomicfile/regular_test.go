package atomicfile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/densityops/oooi/internal/atomicfile"
)

// TestOnlyRegularFilesAreReplacedAndRead uses a FIFO in place of a device, because only root can create
// devices.
func TestOnlyRegularFilesAreReplacedAndRead(t *testing.T) {
	dir := t.TempDir()
	pathOf := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(pathOf("file"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pathOf("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(pathOf("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"link": "file", "dangling": "none"} {
		if err := os.Symlink(target, pathOf(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"fifo", "folder", "dangling"} {
		before, err := os.Lstat(pathOf(name))
		if err != nil {
			t.Fatal(err)
		}
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
	if err := atomicfile.Replace(pathOf("link"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(pathOf("link")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the symbolic link is %v: %v", info, err)
	}
	if content, err := atomicfile.Read(pathOf("file")); err != nil || string(content) != "new" {
		t.Errorf("the target of the link has content %q: %v", content, err)
	}
	if err := os.Truncate(pathOf("file"), 1<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := atomicfile.Read(pathOf("file")); err == nil {
		t.Error("a file of 1 GiB was read")
	}
}
