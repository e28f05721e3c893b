package vip

import (
	"net/netip"
	"testing"
)

var (
	testMAC  = mac{2, 0, 0, 0, 0, 0x11}
	otherMAC = mac{2, 0, 0, 0, 0, 0x22}
	test4    = netip.MustParseAddr("192.0.2.4")
	test6    = netip.MustParseAddr("2001:db8::4")
)

func TestParseFrames(t *testing.T) {
	probe6, _ := ndProbe(test6)
	for _, tc := range []struct {
		name  string
		frame []byte
		want  parsedFrame
	}{
		{"probe", arpProbe(testMAC, test4), parsedFrame{Sender: testMAC}},
		{"announcement", arpAnnouncements(testMAC, test4, false)[0], parsedFrame{Sender: testMAC, Address: test4}},
		{"request of the Lease holder's announcement", arpAnnouncements(testMAC, test4, true)[0], parsedFrame{Sender: testMAC, Address: test4}},
		{"reply of the Lease holder's announcement", arpAnnouncements(testMAC, test4, true)[1], parsedFrame{Sender: testMAC, Address: test4, Leased: true}},
		{"reply to a probe", arp(arpReply, testMAC, test4, otherMAC, netip.IPv4Unspecified()), parsedFrame{Sender: testMAC, Address: test4}},
		{"request for another address", arp(arpRequest, testMAC, test4, mac{}, netip.MustParseAddr("192.0.2.9")), parsedFrame{Sender: testMAC, Address: test4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, ok := parseARP(tc.frame, otherMAC); !ok || got != tc.want {
				t.Errorf("%+v, %t; want %+v", got, ok, tc.want)
			}
		})
	}
	for _, tc := range []struct {
		name  string
		frame []byte
		want  parsedFrame
	}{
		{"probe", probe6, parsedFrame{Sender: otherMAC}},
		{"announcement", ndAnnouncement(testMAC, test6, false), parsedFrame{Sender: testMAC, Address: test6}},
		{"announcement by the Lease holder", ndAnnouncement(testMAC, test6, true), parsedFrame{Sender: testMAC, Address: test6, Leased: true}},
	} {
		t.Run(tc.name+" for IPv6", func(t *testing.T) {
			if got, ok := parseND(tc.frame, otherMAC); !ok || got != tc.want {
				t.Errorf("%+v, %t; want %+v", got, ok, tc.want)
			}
		})
	}
}

// TestSolicitedNode checks the example of RFC 4291, 2.7.1.
func TestSolicitedNode(t *testing.T) {
	group, to := solicitedNode(netip.MustParseAddr("4037::01:800:200e:8c6c"))
	if group.String() != "ff02::1:ff0e:8c6c" || to.String() != "33:33:ff:0e:8c:6c" {
		t.Errorf("%s, %s", group, to)
	}
}

func FuzzFrames(f *testing.F) {
	probe6, _ := ndProbe(test6)
	for _, seed := range [][]byte{arpProbe(testMAC, test4), ndAnnouncement(testMAC, test6, true), probe6, nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if f, ok := parseARP(frame, testMAC); ok && f.Leased && !f.Address.Is4() {
			t.Errorf("%+v", f)
		}
		if f, ok := parseND(frame, testMAC); ok && f.Leased && !f.Address.Is6() {
			t.Errorf("%+v", f)
		}
	})
}
