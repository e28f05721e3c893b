package setup

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/api/v1alpha1"
)

func TestFreeAddresses(t *testing.T) {
	for _, tc := range []struct {
		name, network string
		taken, want   []string
		next, largest string
	}{
		{"an empty network", "192.0.2.0/24", nil, []string{"192.0.2.1-192.0.2.254"}, "192.0.2.1", "192.0.2.2-192.0.2.254"},
		{"the gateway first", "192.0.2.0/29", []string{"192.0.2.1"}, []string{"192.0.2.2-192.0.2.6"}, "192.0.2.2", "192.0.2.3-192.0.2.6"},
		{"the gateway last", "192.0.2.0/29", []string{"192.0.2.6"}, []string{"192.0.2.1-192.0.2.5"}, "192.0.2.1", "192.0.2.2-192.0.2.5"},
		{"overlapping, unsorted ranges", "192.0.2.0/28", []string{"192.0.2.8-192.0.2.10", "192.0.2.1", "192.0.2.4-192.0.2.9"}, []string{"192.0.2.2-192.0.2.3", "192.0.2.11-192.0.2.14"}, "192.0.2.2", "192.0.2.11-192.0.2.14"},
		{"addresses outside of the network", "192.0.2.0/30", []string{"198.51.100.1", "192.0.1.0-192.0.2.1", "2001:db8::1"}, []string{"192.0.2.2"}, "192.0.2.2", ""},
		{"a range beyond the end", "192.0.2.0/29", []string{"192.0.2.3-192.0.3.9"}, []string{"192.0.2.1-192.0.2.2"}, "192.0.2.1", "192.0.2.2"},
		{"a full network", "192.0.2.0/30", []string{"192.0.2.1-192.0.2.2"}, nil, "", ""},
		{"a network of one address", "192.0.2.0/32", nil, nil, "", ""},
		{"the last network", "255.255.255.0/24", []string{"255.255.255.200-255.255.255.255"}, []string{"255.255.255.1-255.255.255.199"}, "255.255.255.1", "255.255.255.2-255.255.255.199"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &subnet{network: netip.MustParsePrefix(tc.network)}
			for _, text := range tc.taken {
				r, err := v1alpha1.ParseAddressRange(text)
				if err != nil {
					t.Fatal(err)
				}
				s.reserveRange(r)
			}
			var got []string
			for _, gap := range s.free() {
				got = append(got, gap.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			next, err := s.next()
			if tc.next == "" && err == nil || tc.next != "" && next.String() != tc.next {
				t.Errorf("next: %s, %v, want %q", next, err, tc.next)
			}
			largest, err := s.largest()
			if tc.largest == "" && err == nil || tc.largest != "" && largest.String() != tc.largest {
				t.Errorf("largest: %s, %v, want %q", largest, err, tc.largest)
			}
		})
	}
}
