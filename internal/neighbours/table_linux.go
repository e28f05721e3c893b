package neighbours

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// table returns the kernel's table of IPv4 neighbors.
func table() (map[netip.Addr]Result, error) {
	list, err := netlink.NeighList(0, netlink.FAMILY_V4)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // interrupted by a change of the table
		return nil, fmt.Errorf("reading the neighbor table: %w", err)
	}
	all := map[netip.Addr]Result{}
	for _, n := range list {
		found := Result{MAC: n.HardwareAddr}
		switch n.State {
		case netlink.NUD_REACHABLE:
			found.Use = Used
		case netlink.NUD_INCOMPLETE, netlink.NUD_FAILED:
			found.Use = Free
		default:
		}
		if addr, ok := netip.AddrFromSlice(n.IP); ok {
			all[addr] = found
		}
	}
	return all, nil
}
