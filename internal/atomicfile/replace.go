// Package atomicfile replaces files as a whole: a reader finds the old one or the new, after
// a crash, too.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file, mode 0600, in the place of one that may be there. A symbolic link is followed;
// what is no regular file, such as a device, stays and is an error.
func Replace(path string, data []byte) error {
	path, err := regular(path)
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, errors.Join(err, os.Remove(temp.Name())))
	}
	return nil
}

// regular returns the path of the file itself, which need not exist.
func regular(path string) (string, error) {
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
