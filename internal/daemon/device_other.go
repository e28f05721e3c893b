//go:build !linux

package daemon

import (
	"net/netip"
	"syscall"
)

// DeviceOf returns nothing: only Linux binds sockets to interfaces this way.
func DeviceOf(netip.Addr) string { return "" }

func bindTo(string) func(network, address string, c syscall.RawConn) error { return nil }
