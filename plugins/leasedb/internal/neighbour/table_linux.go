package neighbour

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// table returns the kernel's table of IPv4 neighbors.
func table() (map[netip.Addr]Result, error) {
	data, err := syscall.NetlinkRIB(unix.RTM_GETNEIGH, unix.AF_INET)
	if err != nil {
		return nil, fmt.Errorf("reading the neighbor table: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		return nil, fmt.Errorf("reading the neighbor table: %w", err)
	}
	all := map[netip.Addr]Result{}
	for _, m := range messages {
		if m.Header.Type == unix.RTM_NEWNEIGH {
			if addr, found, ok := parse(m.Data); ok {
				all[addr] = found
			}
		}
	}
	return all, nil
}

// parse decodes a struct ndmsg and its attributes (rtnetlink(7)).
func parse(data []byte) (addr netip.Addr, found Result, ok bool) {
	const stateAt, attributeHead, align = 8, 4, 4
	if len(data) < unix.SizeofNdMsg {
		return addr, found, false
	}
	switch binary.NativeEndian.Uint16(data[stateAt:]) {
	case unix.NUD_REACHABLE:
		found.Use = Used
	case unix.NUD_INCOMPLETE, unix.NUD_FAILED:
		found.Use = Free
	default:
	}
	for rest := data[unix.SizeofNdMsg:]; len(rest) >= attributeHead; {
		size, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])
		if size < attributeHead || size > len(rest) {
			break
		}
		switch value := rest[attributeHead:size]; kind {
		case unix.NDA_DST:
			addr, ok = netip.AddrFromSlice(value)
		case unix.NDA_LLADDR:
			found.MAC = value
		}
		rest = rest[min(len(rest), (size+align-1)/align*align):]
	}
	return addr, found, ok
}
