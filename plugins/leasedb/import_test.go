package leasedb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/dhcplease"
)

func TestImport(t *testing.T) {
	cp := plane.Get(t)
	for name, arguments := range map[string]string{
		"a file":        bolt(t) + network,
		"Lease objects": fmt.Sprintf("store=kubernetes namespace=%s pool=p kubeconfig=%s", cp.Namespace(t), cp.Kubeconfig()) + network,
	} {
		t.Run(name, func(t *testing.T) { testImport(t, arguments) })
	}
}

func testImport(t *testing.T, arguments string) {
	d := newDirectory()
	d.boot("old", mac(9))
	d.boot("moved", mac(8))
	i := serve(t, d, arguments)
	old := dora(t, i, mac(9))
	moved := netip.AddrFrom4([4]byte(dora(t, i, mac(8)).To4()))
	closeInstance(t, i)

	assignment := func(name, addr string, n int) Assignment {
		return Assignment{Interface: dhcplease.Interface{Namespace: "demo", VM: name, Name: "vlan"}, MAC: mac(n).String(), Hostname: name, Addr: netip.MustParseAddr(addr)}
	}
	other := func(not ...netip.Addr) string { // an address that no client has
		a := netip.MustParseAddr("192.0.2.20")
		for slices.Contains(append(not, moved, netip.AddrFrom4([4]byte(old.To4()))), a) {
			a = a.Next()
		}
		return a.String()
	}
	first := other()
	second := other(netip.MustParseAddr(first))
	all := []Assignment{
		assignment("worker-0", first, 1), assignment("worker-1", "198.51.100.1", 2), assignment("worker-1", second, 2),
		assignment("worker-2", first, 3), assignment("wor/ker", second, 5), assignment("worker-0", "192.0.2.99", 1),
		assignment("old", old.String(), 9), assignment("moved", other(netip.MustParseAddr(first), netip.MustParseAddr(second)), 8),
	}
	outcome := []string{
		"new", "not in the ranges of the pool", "new", "bound to another", "must be namespace/vm/interface", "has another address, " + first,
		"kept", "has another address, " + moved.String(),
	}
	check := func(write bool, want []string) {
		t.Helper()
		got, err := Import(t.Context(), strings.Fields(arguments), write, all)
		if err != nil || len(got) != len(want) {
			t.Fatalf("got %v, %v", got, err)
		}
		for n, one := range got {
			text := "new"
			if one.Kept {
				text = "kept"
			} else if one.Err != nil {
				text = one.Err.Error()
			}
			if !strings.Contains(text, want[n]) {
				t.Errorf("write %t: %v of %s: %q, want %q", write, one.Addr, one.VM, text, want[n])
			}
		}
	}
	check(false, outcome)
	check(false, outcome)
	check(true, outcome)
	outcome[0], outcome[2] = "kept", "kept"
	check(true, outcome)

	d.boot("worker-0", mac(1))
	i = serve(t, d, arguments)
	ack := want(t, i, message(dhcpv4.MessageTypeRequest, mac(1), dhcpv4.WithClientIP(ip(first))), dhcpv4.MessageTypeAck)
	if !ack.YourIPAddr.Equal(ip(first)) || i.pool.Stats().Bound != 4 {
		t.Errorf("got %v, and %+v", ack.YourIPAddr, i.pool.Stats())
	}
}

func TestImportErrors(t *testing.T) {
	for name, tt := range map[string]struct{ args, err string }{
		"arguments":     {"store=bolt", "file is missing"},
		"no directory":  {"store=bolt file=/nowhere/leases.db" + network, "create the directory"},
		"no API server": {"store=kubernetes namespace=a pool=b kubeconfig=/nowhere" + network, "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Import(t.Context(), strings.Fields(tt.args), true, nil); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("the error is %v, want %q in it", err, tt.err)
			}
		})
	}
}
