package leasedb

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// maxIdentity is how many bytes of an identifier are written as they are; longer ones as their hash.
const maxIdentity = 64

// machine returns the virtual machine's interface that has a MAC address, where a directory knows.
func (i *instance) machine(mac net.HardwareAddr) (pool.Client, bool) {
	m, ok := i.directory.Lookup(mac)
	if !ok {
		return pool.Client{}, false
	}
	c := pool.Client{Holder: m.String(), Machine: true, MAC: mac.String(), Hostname: m.Hostname}
	for _, a := range m.Reserved {
		if a.Is4() {
			c.Reserved = a
		}
	}
	return c, true
}

// ordinary returns a client by what it calls itself.
func ordinary(kind string, id []byte, mac net.HardwareAddr, hostname string) pool.Client {
	if len(id) > maxIdentity {
		sum := sha256.Sum256(id)
		id = sum[:]
	}
	return pool.Client{Holder: kind + ":" + hex.EncodeToString(id), MAC: mac.String(), Hostname: printable(hostname)}
}

// printable keeps of a name that anybody can send what is fit to be shown.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return -1
	}, s)
	return s[:min(len(s), 63)]
}

// address returns a packet's address, and whether it is one.
func address(ip net.IP) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip)
	a = a.Unmap()
	return a, ok && !a.IsUnspecified()
}
