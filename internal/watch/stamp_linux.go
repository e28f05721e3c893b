package watch

import (
	"io/fs"
	"syscall"
)

// identity distinguishes a file from others at its path, and from its previous content: programs cannot set
// the change time.
type identity struct {
	device, inode uint64
	changed       syscall.Timespec
}

func identityOf(info fs.FileInfo) identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{uint64(s.Dev), s.Ino, s.Ctim} //nolint:unconvert // the type of Dev differs between architectures
}
