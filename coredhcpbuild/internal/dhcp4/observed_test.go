package dhcp4

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

func TestOffersThatAreNotRequested(t *testing.T) {
	start := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	class := func(name string) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptClassIdentifier(name)) }
	for _, tc := range []struct {
		name    string
		seconds []int // of the offers
		class   string
		request bool
		want    string
	}{
		{"asks again", []int{0, 4, 12}, "", false, "[3 12s]"},
		{"requests one", []int{0, 4}, "", true, "[]"},
		{"after a pause", []int{0, 4, 200, 203}, "", false, "[2 3s]"},
		{"boots from the network", []int{0, 4, 12}, "PXEClient:Arch:00007", false, "[]"},
		{"oooi's probe", []int{0, 4, 12}, "oooi-probe", false, "[]"},
	} {
		s := &Server{offers: newOffers()}
		for i, seconds := range tc.seconds {
			s.offers.observe(request(t, 1, byte(i), dhcpv4.MessageTypeDiscover, class(tc.class)), start.Add(time.Duration(seconds)*time.Second))
		}
		if tc.request {
			s.offers.forget(request(t, 1, 1, dhcpv4.MessageTypeRequest).ClientHWAddr)
		}
		got := "["
		for _, o := range s.Offered() {
			got += fmt.Sprint(o.Offers, " ", o.Last.Sub(o.First))
		}
		if got += "]"; got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
	s := &Server{offers: newOffers()}
	for i := range 2 * maxOffered {
		discover := request(t, 1, 1, dhcpv4.MessageTypeDiscover)
		discover.ClientHWAddr[1], discover.ClientHWAddr[2] = byte(i>>8), byte(i)
		s.offers.observe(discover, start.Add(time.Duration(i)*time.Millisecond))
	}
	if list := s.Offered(); len(list) != maxOffered || list[0].MAC != "02:04:00:00:00:01" {
		t.Errorf("%d clients are remembered, the first one is %s", len(list), list[0].MAC)
	}
}

func TestSelections(t *testing.T) {
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	selected := func(last byte) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, last)))
	}
	s := newSelections()
	observe := func(p *dhcpv4.DHCPv4) {
		at = at.Add(time.Second)
		s.observe(p, net.IPv4bcast, at)
	}
	observe(request(t, 1, 1, dhcpv4.MessageTypeRequest, selected(9)))
	observe(request(t, 2, 1, dhcpv4.MessageTypeDecline, selected(9)))
	observe(request(t, 3, 1, dhcpv4.MessageTypeRequest, selected(9)))
	observe(request(t, 3, 1, dhcpv4.MessageTypeRequest, selected(2))) // selects another one at its next boot
	observe(request(t, 4, 1, dhcpv4.MessageTypeRelease, selected(8))) // is sent to one server only
	observe(request(t, 4, 1, dhcpv4.MessageTypeRequest))
	observe(request(t, 4, 1, dhcpv4.MessageTypeRequest, dhcpv4.WithGeneric(dhcpv4.OptionServerIdentifier, []byte{1, 2})))
	observe(request(t, 4, 1, dhcpv4.MessageTypeRequest, selected(0), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4zero))))
	for client := byte(5); client <= 7; client++ {
		observe(request(t, client, 1, dhcpv4.MessageTypeRequest, selected(9)))
	}
	renewal := func(client byte, to net.IP, relay net.IP) {
		at = at.Add(time.Second)
		s.observe(request(t, client, 1, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 100)), dhcpv4.WithGatewayIP(relay)), to, at)
	}
	renewal(5, net.IPv4(192, 0, 2, 2), net.IPv4zero)
	renewal(6, net.IPv4bcast, net.IPv4zero) // any server may answer
	renewal(7, net.IPv4(192, 0, 2, 2), net.IPv4(192, 0, 2, 1))
	want := "[{192.0.2.2 2 2026-11-25 12:00:12 +0000 UTC [02:00:00:00:00:05 02:00:00:00:00:03]} {192.0.2.9 2 2026-11-25 12:00:02 +0000 UTC [02:00:00:00:00:02 02:00:00:00:00:01]}]"
	if got := fmt.Sprint(s.list()); got != want {
		t.Errorf("selections are %s, want %s", got, want)
	}
	server := &Server{selections: s}
	if got, when := server.Selected("02:00:00:00:00:05"); got.String() != "192.0.2.2" || when.Second() != 12 {
		t.Errorf("client 5 selected %s at %s", got, when)
	}
	if got, _ := server.Selected("02:00:00:00:00:06"); got.IsValid() {
		t.Errorf("client 6 selected %s", got)
	}
}

// TestSelectionsAreBounded floods the server from many clients that name many servers.
func TestSelectionsAreBounded(t *testing.T) {
	s := newSelections()
	at := time.Now()
	for i := range 3 * maxSelecting {
		p := request(t, 0, 0, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, byte(i>>8), byte(i)))))
		p.ClientHWAddr = net.HardwareAddr{2, 0, 0, 0, byte(i >> 8), byte(i)}
		s.observe(p, net.IPv4bcast, at.Add(time.Duration(i)))
	}
	list := s.list()
	if len(list) != maxSelecting {
		t.Errorf("%d servers, want %d", len(list), maxSelecting)
	}
	if first := list[0].MACs[0]; first != "02:00:00:00:08:00" {
		t.Errorf("the oldest client is %s; the last ones must be remembered", first)
	}
}

// BenchmarkFlood measures what remembering costs for each packet of clients that were not seen before.
func BenchmarkFlood(b *testing.B) {
	s, o := newSelections(), newOffers()
	p := request(b, 0, 0, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 1))))
	i := 0
	for b.Loop() {
		i++
		p.ClientHWAddr = net.HardwareAddr{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}
		s.observe(p, net.IPv4bcast, time.Now())
		o.observe(p, time.Now())
	}
}

func TestTraffic(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 28, 12, minute, 30, 0, time.UTC) }
	c := &traffic{}
	for _, minute := range []int{0, 1, 1, 5, 10} {
		c.count("", at(minute))
	}
	c.count(dropSend, at(1))
	for minute, want := range map[int]string{10: "[{1 map[]} {1 map[]} {2 map[send_failed:1]}]", 14: "[{1 map[]} {1 map[]}]", 15: "[{1 map[]}]", 60: "[]"} {
		list := c.last(at(minute))
		slices.SortFunc(list, func(a, b Traffic) int { return cmp.Compare(a.Received, b.Received) })
		if got := fmt.Sprint(list); got != want {
			t.Errorf("minute %d: %s, want %s", minute, got, want)
		}
	}
}
