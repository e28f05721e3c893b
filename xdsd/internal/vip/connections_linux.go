package vip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Constants of the kernel's sock_diag.
const (
	sockDiagByFamily = 20
	sockDestroy      = 21

	diagIDAt   = 8  // offset of inet_diag_sockid in inet_diag_req_v2; in inet_diag_msg it is 4
	diagIDSize = 48 // ports, addresses, interface and cookie
)

// openStates are the states of connections that can be reset, as bits: established, closed by one side, but not listening
// sockets and ended connections.
const openStates = 1<<unix.BPF_TCP_ESTABLISHED | 1<<unix.BPF_TCP_FIN_WAIT1 | 1<<unix.BPF_TCP_FIN_WAIT2 | 1<<unix.BPF_TCP_CLOSE_WAIT

// resetConnections resets the TCP connections of all processes in this network namespace whose local address is one of
// the addresses, and returns their number. The addresses must still be on an interface, or no packet reaches the clients.
// It requires CAP_NET_ADMIN, and a kernel with INET_DIAG_DESTROY.
func resetConnections(addresses []netip.Addr) (n int, err error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return 0, fmt.Errorf("opening a socket of sock_diag: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	message := func(kind netlink.HeaderType, flags netlink.HeaderFlags, family byte, id []byte) netlink.Message {
		data := make([]byte, diagIDAt+diagIDSize)
		data[0], data[1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(data[4:], openStates)
		copy(data[diagIDAt:], id)
		return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | flags}, Data: data}
	}
	var requests []netlink.Message
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} { // AF_INET6 includes connections to IPv4 addresses
		sockets, err := conn.Execute(message(sockDiagByFamily, netlink.Dump, family, nil))
		if err != nil {
			return 0, fmt.Errorf("listing the connections: %w", err)
		}
		for _, socket := range sockets {
			if len(socket.Data) < 4+diagIDSize {
				continue
			}
			id := socket.Data[4 : 4+diagIDSize]
			local := netip.AddrFrom16([16]byte(id[4:20])).Unmap()
			if family == unix.AF_INET {
				local = netip.AddrFrom4([4]byte(id[4:8]))
			}
			if slices.Contains(addresses, local) {
				requests = append(requests, message(sockDestroy, 0, family, id))
			}
		}
	}
	if len(requests) == 0 {
		return 0, nil
	}
	// The kernel replies to the first request only: another replica has the addresses meanwhile, and thousands of replies
	// would take a second.
	first, rest := requests[0], requests[1:]
	first.Header.Flags |= netlink.Acknowledge
	if _, err := conn.Execute(first); err != nil && !errors.Is(err, unix.ENOENT) { // it may have ended meanwhile
		return 0, fmt.Errorf("resetting a connection: %w; the kernel needs INET_DIAG_DESTROY", err)
	}
	for batch := range slices.Chunk(rest, 256) {
		if _, err := conn.SendMessages(batch); err != nil {
			return 0, fmt.Errorf("resetting connections: %w", err)
		}
	}
	return len(requests), nil
}
