//go:build !linux

package probe

import (
	"errors"
	"syscall"
)

// setSegmentSize is only implemented on Linux, where xdsd runs.
func setSegmentSize(_, _ string, _ syscall.RawConn) error { return errors.ErrUnsupported }

// setUnfragmented is only implemented on Linux.
func setUnfragmented(int) error { return errors.ErrUnsupported }
