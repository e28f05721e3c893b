package neighbour

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// entry returns a struct ndmsg with attributes, as the kernel encodes it.
func entry(state uint16, attributes ...[]byte) []byte {
	head := make([]byte, unix.SizeofNdMsg)
	binary.NativeEndian.PutUint16(head[8:], state)
	return slices.Concat(append([][]byte{head}, attributes...)...)
}

func attribute(kind uint16, value ...byte) []byte {
	data := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	data = append(binary.NativeEndian.AppendUint16(data, kind), value...)
	for len(data)%4 != 0 {
		data = append(data, 0)
	}
	return data
}

func TestParse(t *testing.T) {
	addr, mac := attribute(unix.NDA_DST, 192, 0, 2, 7), attribute(unix.NDA_LLADDR, 2, 0, 0, 0, 0, 7)
	for _, tc := range []struct {
		name string
		data []byte
		want Use
		mac  string
		ok   bool
	}{
		{"reachable", entry(unix.NUD_REACHABLE, mac, addr), Used, "02:00:00:00:00:07", true},
		{"incomplete", entry(unix.NUD_INCOMPLETE, addr), Free, "", true},
		{"failed", entry(unix.NUD_FAILED, attribute(unix.NDA_PROBES, 3, 0, 0, 0), addr), Free, "", true},
		{"stale", entry(unix.NUD_STALE, addr, mac), Unknown, "02:00:00:00:00:07", true},
		{"probing", entry(unix.NUD_PROBE, addr, mac), Unknown, "02:00:00:00:00:07", true},
		{"no address", entry(unix.NUD_REACHABLE, mac), Used, "02:00:00:00:00:07", false},
		{"truncated message", entry(unix.NUD_REACHABLE)[:7], Unknown, "", false},
		{"truncated attribute", append(entry(unix.NUD_REACHABLE, addr), attribute(unix.NDA_LLADDR, 2, 0)[:5]...), Used, "", true},
		{"attribute of length zero", entry(unix.NUD_REACHABLE, addr, make([]byte, 8)), Used, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, found, ok := parse(tc.data)
			if ok != tc.ok || found.Use != tc.want || found.MAC.String() != tc.mac || ok && a != netip.MustParseAddr("192.0.2.7") {
				t.Errorf("got %v, %+v, %t", a, found, ok)
			}
		})
	}
}

// TestProbeOfAnotherNetwork probes loopback, which has no neighbors.
func TestProbeOfAnotherNetwork(t *testing.T) {
	found, err := Probe(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	if err != nil || len(found) != 0 {
		t.Errorf("got %v, %v", found, err)
	}
}
