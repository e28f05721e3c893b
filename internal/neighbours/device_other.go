//go:build !linux

package neighbours

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Hosts returns an error: it is supported on Linux only.
func Hosts(context.Context, string, []netip.Addr) (map[netip.Addr]net.HardwareAddr, error) {
	return nil, errors.ErrUnsupported
}
