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

func TestFramesSayWhatTheyShould(t *testing.T) {
	probe6, _ := ndProbe(test6)
	for _, tc := range []struct {
		name  string
		frame []byte
		want  heard
	}{
		{"a probe", arpProbe(testMAC, test4), heard{By: testMAC}},
		{"an announcement", arpAnnouncements(testMAC, test4, false)[0], heard{By: testMAC, Address: test4}},
		{"the first one by who has the Lease", arpAnnouncements(testMAC, test4, true)[0], heard{By: testMAC, Address: test4}},
		{"the second", arpAnnouncements(testMAC, test4, true)[1], heard{By: testMAC, Address: test4, Leased: true}},
		{"an answer to a probe", arp(arpReply, testMAC, test4, otherMAC, netip.IPv4Unspecified()), heard{By: testMAC, Address: test4}},
		{"a question by who has it", arp(arpRequest, testMAC, test4, mac{}, netip.MustParseAddr("192.0.2.9")), heard{By: testMAC, Address: test4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, ok := parseARP(tc.frame); !ok || got != tc.want {
				t.Errorf("%+v, %t; want %+v", got, ok, tc.want)
			}
		})
	}
	for _, tc := range []struct {
		name  string
		frame []byte
		want  heard
	}{
		{"a probe", probe6, heard{By: otherMAC}},
		{"an announcement", ndAnnouncement(testMAC, test6, false), heard{By: testMAC, Address: test6}},
		{"one by who has the Lease", ndAnnouncement(testMAC, test6, true), heard{By: testMAC, Address: test6, Leased: true}},
	} {
		t.Run(tc.name+" of IPv6", func(t *testing.T) {
			if got, ok := parseND(tc.frame, otherMAC); !ok || got != tc.want {
				t.Errorf("%+v, %t; want %+v", got, ok, tc.want)
			}
		})
	}
}

// TestProbesGoToTheGroup is RFC 4291, 2.7.1, by its example.
func TestProbesGoToTheGroup(t *testing.T) {
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
		if h, ok := parseARP(frame); ok && h.Leased && !h.Address.Is4() {
			t.Errorf("%+v", h)
		}
		if h, ok := parseND(frame, testMAC); ok && h.Leased && !h.Address.Is6() {
			t.Errorf("%+v", h)
		}
	})
}
