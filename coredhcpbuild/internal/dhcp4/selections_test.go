package dhcp4

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestSelections(t *testing.T) {
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	selected := func(last byte) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, last)))
	}
	s := newSelections()
	observe := func(p *dhcpv4.DHCPv4) {
		at = at.Add(time.Second)
		s.observe(p, at)
	}
	observe(request(t, 1, 1, dhcpv4.MessageTypeRequest, selected(9)))
	observe(request(t, 2, 1, dhcpv4.MessageTypeDecline, selected(9)))
	observe(request(t, 3, 1, dhcpv4.MessageTypeRequest, selected(9)))
	observe(request(t, 3, 1, dhcpv4.MessageTypeRequest, selected(2))) // selects another one at its next boot
	observe(request(t, 4, 1, dhcpv4.MessageTypeRelease, selected(8))) // is sent to one server only
	observe(request(t, 4, 1, dhcpv4.MessageTypeRequest))
	observe(request(t, 4, 1, dhcpv4.MessageTypeRequest, dhcpv4.WithGeneric(dhcpv4.OptionServerIdentifier, []byte{1, 2})))
	observe(request(t, 4, 1, dhcpv4.MessageTypeRequest, selected(0), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4zero))))
	want := "[{192.0.2.2 1 2026-11-25 12:00:04 +0000 UTC [02:00:00:00:00:03]} {192.0.2.9 2 2026-11-25 12:00:02 +0000 UTC [02:00:00:00:00:02 02:00:00:00:00:01]}]"
	if got := fmt.Sprint(s.list()); got != want {
		t.Errorf("selections are %s, want %s", got, want)
	}
	if got := testutil.ToFloat64(s.counter.WithLabelValues("192.0.2.9")); got != 3 {
		t.Errorf("%v messages selected 192.0.2.9, want 3", got)
	}
}

// TestSelectionsAreBounded floods the server from many clients that name many servers.
func TestSelectionsAreBounded(t *testing.T) {
	s := newSelections()
	at := time.Now()
	for i := range 3 * maxSelecting {
		p := request(t, 0, 0, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, byte(i>>8), byte(i)))))
		p.ClientHWAddr = net.HardwareAddr{2, 0, 0, 0, byte(i >> 8), byte(i)}
		s.observe(p, at.Add(time.Duration(i)))
	}
	list := s.list()
	if len(list) != maxSelecting || testutil.CollectAndCount(s.counter) != maxSelected+1 {
		t.Errorf("%d servers and %d series, want %d and %d", len(list), testutil.CollectAndCount(s.counter), maxSelecting, maxSelected+1)
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
		s.observe(p, time.Now())
		o.observe(p, time.Now())
	}
}
