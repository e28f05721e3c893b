package proxy_test

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestOnlyServicePortsListenOnTheVLAN(t *testing.T) {
	s := newSite(t)
	before := listeners(t)
	s.controlPlane(t)
	s.start(t)
	var vlan, loopback []string
	for _, l := range listeners(t) {
		switch address := l.Addr(); {
		case address.IsUnspecified():
			t.Errorf("%s listens on all addresses, including those of the VLAN", l)
		case address == netip.MustParseAddr(s.ip(3)), address == netip.MustParseAddr(s.net6+"3"):
			vlan = append(vlan, l.String())
		case address.IsLoopback() && !slices.Contains(before, l):
			loopback = append(loopback, l.String())
		}
	}
	var want []string
	for _, port := range []int{80, 443, 6443, 8091} {
		want = append(want, s.at(3, port), s.at6(3, port))
	}
	slices.Sort(vlan)
	slices.Sort(want)
	// Envoy has a socket for each of its threads.
	if got := slices.Compact(vlan); !slices.Equal(got, want) {
		t.Errorf("listeners on the VLAN: %q, want %q", got, want)
	}
	t.Logf("listeners on loopback: %q", loopback)
}

func TestSocketsAreAccessibleToTheOwnerOnly(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.start(t)
	for _, name := range []string{"xds.sock", "admin.sock"} {
		info, err := os.Stat(filepath.Join(s.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
}

// listeners returns all addresses in the network namespace on which a process listens.
func listeners(t *testing.T) []netip.AddrPort {
	t.Helper()
	var list []netip.AddrPort
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			const listening = "0A"
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != listening {
				continue
			}
			l, err := kernelAddress(fields[1])
			if err != nil {
				t.Fatalf("%v in %q", err, line)
			}
			list = append(list, l)
		}
	}
	return list
}

// kernelAddress parses an address of /proc/net/tcp: 32-bit words in hexadecimal, each with its least
// significant byte first.
func kernelAddress(text string) (netip.AddrPort, error) {
	words, number, _ := strings.Cut(text, ":")
	address, err := hex.DecodeString(words)
	port, portErr := strconv.ParseUint(number, 16, 16)
	for word := range slices.Chunk(address, 4) {
		slices.Reverse(word)
	}
	ip, ok := netip.AddrFromSlice(address)
	if !ok {
		return netip.AddrPort{}, errors.Join(errors.New("no address"), err, portErr)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)), errors.Join(err, portErr)
}
