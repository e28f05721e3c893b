package leasedb

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// maxIdentity is the maximum length of an identifier in bytes. Longer ones are replaced by their hash.
const maxIdentity = 64

// vmClient returns the client of a VM interface by MAC address, and whether the directory contains it.
func (i *instance) vmClient(mac net.HardwareAddr) (pool.Client, bool) {
	m, ok := i.directory.Lookup(mac)
	if !ok {
		return pool.Client{}, false
	}
	c := pool.Client{Holder: m.String(), VM: true, MAC: mac.String(), Hostname: m.Hostname}
	for _, a := range m.Reserved {
		if a.Is4() {
			c.Reserved = a
		}
	}
	return c, true
}

// ordinaryClient returns a client identified by what it sends.
func ordinaryClient(kind string, id []byte, mac net.HardwareAddr, hostname string) pool.Client {
	if len(id) > maxIdentity {
		sum := sha256.Sum256(id)
		id = sum[:]
	}
	return pool.Client{Holder: kind + ":" + hex.EncodeToString(id), MAC: mac.String(), Hostname: printable(hostname)}
}

// printable removes all characters from a client-supplied hostname that are not safe to display.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return -1
	}, s)
	return s[:min(len(s), 63)]
}

// address converts an address of a packet, and reports whether it is set.
func address(ip net.IP) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip)
	a = a.Unmap()
	return a, ok && !a.IsUnspecified()
}
