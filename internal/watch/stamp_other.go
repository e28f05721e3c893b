//go:build !linux

package watch

import "io/fs"

// identity tells nothing here: size and time alone say whether a file has changed.
type identity struct{}

func identityOf(fs.FileInfo) identity { return identity{} }
