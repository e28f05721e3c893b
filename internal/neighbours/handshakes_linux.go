package neighbours

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	report "github.com/densityops/oooi/internal/probe"
)

const (
	// minRepeated is how often the kernel must have repeated its SYN-ACK, which it does after 1 and 3 seconds.
	minRepeated = 2
	// maxUnfinished limits the result of Unfinished.
	maxUnfinished = 32
)

// Unfinished returns the connections of this network namespace whose handshake does not complete, by client and port,
// sorted: the client does not answer a repeated SYN-ACK. At most 32 are returned.
func Unfinished() ([]report.Unfinished, error) {
	var sockets []*netlink.Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		list, err := netlink.SocketDiagTCP(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("listing TCP sockets: %w", err)
		}
		sockets = append(sockets, list...)
	}
	counts := map[report.Unfinished]int{}
	for _, s := range sockets {
		address, _ := netip.AddrFromSlice(s.ID.Source)
		client, _ := netip.AddrFromSlice(s.ID.Destination)
		if s.State == netlink.TCP_SYN_RECV && s.Retrans >= minRepeated {
			counts[report.Unfinished{Address: netip.AddrPortFrom(address.Unmap(), s.ID.SourcePort), Client: client.Unmap()}]++
		}
	}
	var list []report.Unfinished
	for u, count := range counts {
		u.Connections = count
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b report.Unfinished) int {
		return cmp.Or(a.Address.Compare(b.Address), a.Client.Compare(b.Client))
	})
	return list[:min(len(list), maxUnfinished)], nil
}
