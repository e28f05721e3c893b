//go:build !linux

package neighbour

import (
	"errors"
	"net/netip"
)

func table() (map[netip.Addr]Found, error) {
	return nil, errors.New("reading the table of neighbours: it is read on Linux alone")
}
