package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
)

// maxSize bounds what Read takes into memory.
const maxSize = 256 << 20

// Read returns the content of a state file. What is no regular file, or is larger than any state, is an
// error without being read: a FIFO would wait for a writer, and a huge file end the process.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err //nolint:wrapcheck // it names the file and the operation
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxSize:
		return nil, fmt.Errorf("%s has %d MiB, more than %d", path, info.Size()>>20, maxSize>>20)
	}
	return os.ReadFile(path) //nolint:wrapcheck // it names the file and the operation
}

// asideSuffix is added to the name of a file that is set aside.
const asideSuffix = ".unusable"

// SetAside renames a file whose content cannot be used to PATH.unusable, replacing an earlier one, so
// that it can be examined, and logs both names with the reason. A file that cannot even be read stays
// where it is.
func SetAside(log *slog.Logger, path string, why error) {
	if _, unreadable := errors.AsType[*fs.PathError](why); unreadable {
		log.Error("cannot read the file; continuing without it", "file", path, "err", why)
		return
	}
	aside := path + asideSuffix
	if err := os.Rename(path, aside); err != nil {
		log.Error("cannot use the file, nor set it aside; it will be overwritten", "file", path, "err", errors.Join(why, err))
		return
	}
	log.Error("cannot use the file; it is set aside, and a new one will be written", "file", path, "aside", aside, "err", why)
}
