package leasedb

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

func TestImport(t *testing.T) {
	arguments := bolt(t) + network
	assignment := func(name, addr string, n int) Assignment {
		return Assignment{Namespace: "demo", VM: name, Interface: "vlan", MAC: mac(n).String(), Hostname: name, Addr: netip.MustParseAddr(addr)}
	}
	good := assignment("worker-0", "192.0.2.20", 1)
	all := []Assignment{
		good, assignment("worker-1", "192.0.2.21", 2), assignment("worker-2", "192.0.2.21", 3), assignment("worker-3", "198.51.100.1", 4),
		assignment("wor/ker", "192.0.2.22", 5), good,
	}
	got, err := Import(t.Context(), strings.Fields(arguments), all)
	if err != nil || got.Written != 2 || got.Kept != 1 || len(got.Skipped) != 3 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got, err = Import(t.Context(), strings.Fields(arguments), all[:2]); err != nil || got.Written != 0 || got.Kept != 2 {
		t.Errorf("once more: %+v, %v", got, err)
	}
	d := newDirectory()
	d.boot("worker-0", mac(1))
	i := serve(t, d, arguments)
	ack := want(t, i, message(dhcpv4.MessageTypeRequest, mac(1), dhcpv4.WithClientIP(ip("192.0.2.20"))), dhcpv4.MessageTypeAck)
	if !ack.YourIPAddr.Equal(ip("192.0.2.20")) {
		t.Errorf("got %v", ack.YourIPAddr)
	}
	if _, err := Import(t.Context(), []string{"store=bolt"}, nil); err == nil {
		t.Error("imported without a file")
	}
}
