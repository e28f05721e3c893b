package kubevirt

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

func TestUnknownClients(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	packet := func(kind dhcpv4.MessageType, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
		p, err := dhcpv4.New(append(mods, dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(kind))...)
		lab.Must(t, err)
		return p
	}
	discover, request := packet(dhcpv4.MessageTypeDiscover), packet(dhcpv4.MessageTypeRequest)
	selects := packet(dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 9))))
	start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	type sent struct {
		seconds int
		packet  *dhcpv4.DHCPv4
	}
	for _, tc := range []struct {
		name string
		sent []sent
		want string
	}{
		{"without an answer", []sent{{0, discover}, {4, discover}, {12, request}}, "3 12s"},
		{"after a pause", []sent{{0, discover}, {4, discover}, {700, discover}}, "1 0s"},
		{"of another Infra", []sent{{0, discover}, {4, discover}, {12, discover}, {12, selects}}, ""},
		{"with a static address", []sent{{0, packet(dhcpv4.MessageTypeInform)}}, ""},
		{"our probe", []sent{{0, packet(dhcpv4.MessageTypeDiscover, dhcpv4.WithOption(dhcpv4.OptClassIdentifier("oooi-probe")))}}, ""},
	} {
		u := newUnknownClients()
		for _, s := range tc.sent {
			u.observe(s.packet, start.Add(time.Duration(s.seconds)*time.Second))
		}
		got := ""
		for _, c := range u.list(func(net.HardwareAddr) bool { return false }) {
			got += fmt.Sprint(c.Requests, " ", c.Last.Sub(c.First))
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
