package dhcp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// A disk is the file system that the servers write to.
type disk struct {
	dir    string        // a folder on it
	system string        // type of the file system
	sync   time.Duration // median duration of an fsync
}

// memory reports whether the file system is in memory, so that an fsync costs nothing.
func (d disk) memory() bool { return d.system == "tmpfs" }

// findDisk returns the file system of temporary files or, if that is in memory, of this repository.
func findDisk() (d disk, err error) {
	d.dir = os.TempDir()
	if d.system, err = fileSystem(d.dir); err != nil {
		return disk{}, err
	}
	if d.memory() {
		root, err := lab.Root()
		if err != nil {
			return disk{}, err
		}
		d.dir = filepath.Join(root, ".lab")
		if err := os.MkdirAll(d.dir, 0o750); err != nil {
			return disk{}, fmt.Errorf("creating a work folder: %w", err)
		}
		if d.system, err = fileSystem(d.dir); err != nil {
			return disk{}, err
		}
	}
	d.sync, err = syncTime(d.dir)
	return d, err
}

// fileSystem returns the type of a folder's file system.
func fileSystem(path string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return "", fmt.Errorf("reading the file system of %s: %w", path, err)
	}
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.TMPFS_MAGIC: "tmpfs",
	}
	if name, ok := names[s.Type]; ok {
		return name, nil
	}
	return fmt.Sprintf("a file system of type %#x", s.Type), nil
}

// syncTime returns the median time to write a block and fsync it.
func syncTime(dir string) (median time.Duration, err error) {
	file, err := os.CreateTemp(dir, "oooi-bench-")
	if err != nil {
		return 0, fmt.Errorf("timing an fsync: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	const times, block = 100, 4096
	var took []time.Duration
	for range times {
		started := time.Now()
		if _, err := file.WriteAt(make([]byte, block), 0); err != nil {
			return 0, fmt.Errorf("timing an fsync: %w", err)
		}
		if err := file.Sync(); err != nil {
			return 0, fmt.Errorf("timing an fsync: %w", err)
		}
		took = append(took, time.Since(started))
	}
	return measure.Quantile(took, 0.5), nil
}
