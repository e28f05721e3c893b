//go:build !linux

package daemon

import (
	"net/netip"
	"syscall"
)

// DeviceOf returns "": binding sockets to interfaces is only supported on Linux.
func DeviceOf(netip.Addr) string { return "" }

func bindTo(string) func(network, address string, c syscall.RawConn) error { return nil }
