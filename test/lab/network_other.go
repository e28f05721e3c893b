//go:build unix && !linux

package lab

import (
	"errors"
	"testing"
)

var errNoNetwork = errors.New("network namespaces are only available on Linux")

func runInNetwork() (code int, ran bool, err error) { return 0, false, errNoNetwork }

// SetUpNetwork is only supported on Linux.
func SetUpNetwork([]string) error { return errNoNetwork }

// Blackhole is only supported on Linux.
func (*Backend) Blackhole(tb testing.TB) {
	tb.Helper()
	tb.Skip("socket filters are only available on Linux")
}
