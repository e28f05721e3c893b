package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
)

// maxSize is the size in bytes of the largest file that Read reads into memory.
const maxSize = 256 << 20

// Read returns the content of a state file. It returns an error without reading if path is not a regular
// file, because a FIFO would block, or if it is larger than 256 MiB, because the process could run out of
// memory.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxSize:
		return nil, fmt.Errorf("%s is %d MiB, more than the limit of %d MiB", path, info.Size()>>20, maxSize>>20)
	}
	return os.ReadFile(path)
}

// unusableSuffix is appended to the name of a file that SetAside renames.
const unusableSuffix = ".unusable"

// SetAside renames a file with unusable content to PATH.unusable, replacing an earlier one, so that it can be
// examined. It logs both names and the reason. If the file could not be read (why is an fs.PathError), or
// cannot be renamed, it only logs the reason.
func SetAside(log *slog.Logger, path string, why error) {
	if _, unreadable := errors.AsType[*fs.PathError](why); unreadable {
		log.Error("cannot read the file; continuing without it", "file", path, "err", why)
		return
	}
	aside := path + unusableSuffix
	if err := os.Rename(path, aside); err != nil {
		log.Error("cannot use the file or rename it; it will be overwritten", "file", path, "err", errors.Join(why, err))
		return
	}
	log.Error("cannot use the file; it was renamed, and a new one will be written", "file", path, "aside", aside, "err", why)
}
