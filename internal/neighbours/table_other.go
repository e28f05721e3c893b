//go:build !linux

package neighbours

import (
	"errors"
	"net"
	"net/netip"

	report "github.com/densityops/oooi/internal/probe"
)

func table() (map[netip.Addr]Result, error) {
	return nil, errors.New("reading the neighbor table is supported on Linux only")
}

func refused(net.Conn) bool { return false }

// Unfinished returns nothing: it is supported on Linux only.
func Unfinished() ([]report.Unfinished, error) { return nil, nil }
