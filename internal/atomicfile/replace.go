// Package atomicfile replaces files as a whole: a reader finds the old one or the new, after
// a crash, too.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Replace writes a file, mode 0600, in the place of one that may be there.
func Replace(path string, data []byte) error {
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
