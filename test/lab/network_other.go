//go:build unix && !linux

package lab

import (
	"errors"
	"testing"
)

var errNoNetwork = errors.New("network namespaces are Linux's")

func runInNetwork() (code int, ran bool, err error) { return 0, false, errNoNetwork }

// SetUpNetwork works on Linux only.
func SetUpNetwork([]string) error { return errNoNetwork }

// Blackhole works on Linux only.
func (*Backend) Blackhole(tb testing.TB) {
	tb.Helper()
	tb.Skip("socket filters are Linux's")
}
