package neighbours

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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
	counts := map[report.Unfinished]int{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		request.AddRawData(handshakesOf(family))
		err := request.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(message []byte) bool {
			if u, repeated, ok := parseHandshake(message); ok && repeated >= minRepeated {
				counts[u]++
			}
			return true
		})
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("listing TCP sockets: %w", err)
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

// sizeOfSocketID is the size of struct inet_diag_sockid: two ports, two addresses, interface and cookie.
const sizeOfSocketID = 4 + 16 + 16 + 4 + 8

// handshakesOf returns a struct inet_diag_req_v2 for the TCP sockets of a family in the state SYN_RECV. A proxy has thousands in other
// states, such as those of Envoy's health checks in TIME_WAIT. Source: linux/inet_diag.h.
func handshakesOf(family uint8) []byte {
	request := append([]byte{family, unix.IPPROTO_TCP, 0, 0}, make([]byte, 4+sizeOfSocketID)...)
	binary.NativeEndian.PutUint32(request[4:], 1<<netlink.TCP_SYN_RECV)
	return request
}

// parseHandshake parses a struct inet_diag_msg: the connection, and how often the kernel has repeated its SYN-ACK.
func parseHandshake(message []byte) (u report.Unfinished, repeated uint8, ok bool) {
	if len(message) < 4+sizeOfSocketID || message[1] != netlink.TCP_SYN_RECV {
		return u, 0, false
	}
	size := 16
	if message[0] == unix.AF_INET {
		size = 4
	}
	address, _ := netip.AddrFromSlice(message[8 : 8+size])
	client, _ := netip.AddrFromSlice(message[24 : 24+size])
	u = report.Unfinished{Address: netip.AddrPortFrom(address.Unmap(), binary.BigEndian.Uint16(message[4:])), Client: client.Unmap()}
	return u, message[3], true
}
