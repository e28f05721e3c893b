//go:build !linux

package neighbours

import (
	"errors"
	"net/netip"
)

func table() (map[netip.Addr]Result, error) {
	return nil, errors.New("reading the neighbor table is supported on Linux only")
}
