package daemon_test

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/test/lab"
)

var network lab.Network

func TestMain(m *testing.M) {
	if code := network.Main(m); code != 0 {
		os.Exit(code)
	}
}

// TestGatewaysOf reads the gateways of one of two interfaces.
func TestGatewaysOf(t *testing.T) {
	network.Need(t)
	n := lab.NewNamespace(t)
	for _, command := range []string{
		"link add eth0 type veth peer name peer0", "link add net1 type veth peer name peer1",
		"link set eth0 up", "link set net1 up", "link set peer0 up", "link set peer1 up",
		"address add 10.128.0.7/24 dev eth0", "address add 2001:db8::7/64 dev eth0 nodad", "address add 192.0.2.7/24 dev net1",
		"route add default via 10.128.0.1", "route add 198.51.100.0/24 via 10.128.0.2", "route add default via 2001:db8::1",
		"route add 203.0.113.0/24 via 192.0.2.1",
	} {
		n.Run(t, append([]string{"ip"}, strings.Fields(command)...)...)
	}
	var got []netip.Addr
	lab.Must(t, n.Do(func() (err error) { got, err = daemon.GatewaysOf("eth0"); return err }))
	slices.SortFunc(got, netip.Addr.Compare)
	want := []netip.Addr{netip.MustParseAddr("10.128.0.1"), netip.MustParseAddr("10.128.0.2"), netip.MustParseAddr("2001:db8::1")}
	if !slices.Equal(got, want) {
		t.Errorf("gateways %v, want %v", got, want)
	}
}
