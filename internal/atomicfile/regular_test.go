package atomicfile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/densityops/oooi/internal/atomicfile"
)

// TestOnlyRegularFilesAreReplacedAndRead: a FIFO stands for devices, which only root can make.
func TestOnlyRegularFilesAreReplacedAndRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"link": "file", "nowhere": "none"} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"fifo", "folder", "nowhere"} {
		before, err := os.Lstat(at(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.Replace(at(name), []byte("new")); err == nil {
			t.Errorf("%s is replaced", name)
		}
		if _, err := atomicfile.Read(at(name)); err == nil {
			t.Errorf("%s is read", name)
		}
		if after, err := os.Lstat(at(name)); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s was %s and is %v: %v", name, before.Mode(), after, err)
		}
	}
	if err := atomicfile.Replace(at("link"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(at("link")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the symbolic link is %v: %v", info, err)
	}
	if content, err := atomicfile.Read(at("file")); err != nil || string(content) != "new" {
		t.Errorf("the file that the link leads to has %q: %v", content, err)
	}
	if err := os.Truncate(at("file"), 1<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := atomicfile.Read(at("file")); err == nil {
		t.Error("a gigabyte is read")
	}
}
