package dhcp4

import (
	"fmt"
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
		{"our probe", []int{0, 4, 12}, "oooi-probe", false, "[]"},
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
