package atomicfile

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
)

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
