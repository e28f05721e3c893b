//go:build !linux

package daemon

import (
	"net/netip"
	"syscall"
)

// DeviceOf returns "": binding sockets to interfaces is only supported on Linux.
func DeviceOf(netip.Addr) string { return "" }

// GatewaysOf returns none: DeviceOf finds no interface.
func GatewaysOf(string) ([]netip.Addr, error) { return nil, nil }

func bindTo(string) func(network, address string, c syscall.RawConn) error { return nil }
