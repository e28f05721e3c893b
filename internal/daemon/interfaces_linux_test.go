package daemon_test

import (
	"bytes"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/test/lab"
)

var network lab.Network

func TestMain(m *testing.M) {
	if code := network.Main(m); code != 0 {
		os.Exit(code)
	}
}

// metricsText returns all metrics of an InterfaceCollector.
func metricsText(t *testing.T) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(daemon.InterfaceCollector{})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
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
	if err := n.Do(func() (err error) { got, err = daemon.GatewaysOf("eth0"); return err }); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, netip.Addr.Compare)
	want := []netip.Addr{netip.MustParseAddr("10.128.0.1"), netip.MustParseAddr("10.128.0.2"), netip.MustParseAddr("2001:db8::1")}
	if !slices.Equal(got, want) {
		t.Errorf("gateways %v, want %v", got, want)
	}
}

// TestInterfaceStates collects the metrics of one end of a veth in several states.
func TestInterfaceStates(t *testing.T) {
	network.Need(t)
	var n *lab.Namespace // of this process
	n.Run(t, "ip", "link", "add", "net1", "mtu", "1400", "type", "veth", "peer", "name", "switch")
	n.Run(t, "ip", "link", "set", "switch", "up")
	n.Run(t, "ip", "link", "set", "net1", "up")
	n.Run(t, "ip", "address", "add", "192.0.2.3/24", "dev", "net1")
	for _, tc := range []struct{ name, command, want string }{
		{"up", "ip address add 2001:db8::3/64 dev net1 nodad", `oooi_interface_address{address="192.0.2.3/24",interface="net1"} 1
oooi_interface_address{address="2001:db8::3/64",interface="net1"} 1
oooi_interface_mtu_bytes{interface="net1"} 1400
oooi_interface_up{interface="net1"} 1`},
		{"address removed", "ip address delete 192.0.2.3/24 dev net1", `oooi_interface_address{address="2001:db8::3/64",interface="net1"} 1
oooi_interface_mtu_bytes{interface="net1"} 1400
oooi_interface_up{interface="net1"} 1`},
		{"no carrier", "ip link set switch down", `oooi_interface_address{address="2001:db8::3/64",interface="net1"} 1
oooi_interface_mtu_bytes{interface="net1"} 1400
oooi_interface_up{interface="net1"} 0`},
		{"down", "ip link set net1 down", `oooi_interface_mtu_bytes{interface="net1"} 1400
oooi_interface_up{interface="net1"} 0`},
		{"deleted", "ip link delete net1", ""},
	} {
		n.Run(t, strings.Fields(tc.command)...)
		var lines []string
		for line := range strings.Lines(metricsText(t)) {
			if strings.Contains(line, `"net1"`) && !strings.Contains(line, "packets_total") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		if got := strings.Join(lines, "\n"); got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.name, got, tc.want)
		}
	}
}

func TestInterfaceMetricsExcludeLoopback(t *testing.T) {
	if text := metricsText(t); strings.Contains(text, `"lo"`) {
		t.Errorf("loopback is included:\n%s", text)
	}
}
