package watch

import (
	"io/fs"
	"syscall"
)

// identity tells a file from another one in its place, and from itself after any write: the
// change time is not a program's to set.
type identity struct {
	device, inode uint64
	changed       syscall.Timespec
}

func identityOf(info fs.FileInfo) identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{uint64(s.Dev), s.Ino, s.Ctim} //nolint:unconvert // not of one type on all architectures
}
