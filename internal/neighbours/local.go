package neighbours

import (
	"errors"
	"slices"
	"syscall"
)

// localErrors are errors of connections for which nothing was sent: no free source port, file descriptor or memory.
var localErrors = []error{
	syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
}

// Local reports whether a connection failed because of a resource of this host, which proves nothing about the other one.
func Local(err error) bool {
	return slices.ContainsFunc(localErrors, func(target error) bool { return errors.Is(err, target) })
}
