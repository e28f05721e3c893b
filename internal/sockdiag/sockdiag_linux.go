// Package sockdiag lists and resets the TCP connections of a network namespace by the kernel's sock_diag (linux/inet_diag.h).
package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	byFamily = 20 // SOCK_DIAG_BY_FAMILY
	destroy  = 21 // SOCK_DESTROY

	requestID = 8  // offset of inet_diag_sockid in inet_diag_req_v2
	messageID = 4  // offset of inet_diag_sockid in inet_diag_msg
	sizeOfID  = 48 // ports, addresses, interface and cookie
)

// A Socket is a TCP connection.
type Socket struct {
	Local, Remote netip.AddrPort
	// Retransmits is how often the kernel has repeated the last packet.
	Retransmits uint8

	family byte
	id     []byte
}

// List returns the connections in states, which are bits such as 1<<unix.BPF_TCP_ESTABLISHED.
func List(states uint32) (list []Socket, err error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return nil, fmt.Errorf("opening a socket of sock_diag: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} { // AF_INET6 includes connections to IPv4 addresses
		messages, err := conn.Execute(request(byFamily, netlink.Dump, states, &Socket{family: family}))
		if err != nil {
			return nil, fmt.Errorf("listing TCP connections: %w", err)
		}
		for _, m := range messages {
			if len(m.Data) >= messageID+sizeOfID {
				list = append(list, parse(m.Data))
			}
		}
	}
	return list, nil
}

// openStates are the states of connections that can be reset, but not of listening sockets and ended connections.
const openStates = 1<<unix.BPF_TCP_ESTABLISHED | 1<<unix.BPF_TCP_FIN_WAIT1 | 1<<unix.BPF_TCP_FIN_WAIT2 | 1<<unix.BPF_TCP_CLOSE_WAIT

// Reset resets the open connections of all processes in this network namespace whose local address is one of
// the addresses, and returns their number. The addresses must still be on an interface, or no packet reaches the clients.
// It requires CAP_NET_ADMIN, and a kernel with INET_DIAG_DESTROY.
func Reset(addresses []netip.Addr) (n int, err error) {
	list, err := List(openStates)
	if err != nil {
		return 0, err
	}
	var requests []netlink.Message
	for i := range list {
		if slices.Contains(addresses, list[i].Local.Addr()) {
			requests = append(requests, request(destroy, 0, 0, &list[i]))
		}
	}
	if len(requests) == 0 {
		return 0, nil
	}
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return 0, fmt.Errorf("opening a socket of sock_diag: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
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

// request returns a request with a struct inet_diag_req_v2.
func request(kind netlink.HeaderType, flags netlink.HeaderFlags, states uint32, s *Socket) netlink.Message {
	data := make([]byte, requestID+sizeOfID)
	data[0], data[1] = s.family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(data[4:], states)
	copy(data[requestID:], s.id)
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | flags}, Data: data}
}

// parse parses a struct inet_diag_msg.
func parse(message []byte) Socket {
	s := Socket{Retransmits: message[3], family: message[0], id: message[messageID : messageID+sizeOfID]}
	size := 16
	if s.family == unix.AF_INET {
		size = 4
	}
	local, _ := netip.AddrFromSlice(s.id[4 : 4+size]) // has the length of an address
	remote, _ := netip.AddrFromSlice(s.id[20 : 20+size])
	s.Local = netip.AddrPortFrom(local.Unmap(), binary.BigEndian.Uint16(s.id))
	s.Remote = netip.AddrPortFrom(remote.Unmap(), binary.BigEndian.Uint16(s.id[2:]))
	return s
}
