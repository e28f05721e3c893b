// Package atomicfile reads and replaces state files. Replacement is atomic, even in a crash: a reader finds
// either the old content or the new.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes data to a file with mode 0600, replacing an existing file atomically. It follows symbolic links. It
// returns an error and leaves an existing file unchanged if writing fails, if path is not a regular file, for example
// a device, or if it is a link to a file that does not exist.
func Replace(path string, data []byte) error {
	path, err := resolveRegular(path)
	if err != nil {
		return fmt.Errorf("replacing the file: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("replacing %s: %w", path, errors.Join(err, os.Remove(temp.Name())))
	}
	return nil
}

// resolveRegular returns path with symbolic links resolved. The file need not exist; if it does, it must be a
// regular file.
func resolveRegular(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return "", fmt.Errorf("%s is a symbolic link to a file that does not exist", path)
		}
		return path, nil
	}
	if err != nil {
		return "", err
	}
	info, err := os.Lstat(target)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	return target, nil
}
