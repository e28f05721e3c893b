package setup

import (
	"testing"

	"github.com/densityops/oooi/api/v1alpha1"
)

// TestFreeAddresses checks the addresses that setup chooses for a described Infra.
func TestFreeAddresses(t *testing.T) {
	for _, tc := range []struct {
		name, network string
		taken         []string
		next, largest string
	}{
		{"an empty network", "192.0.2.0/24", nil, "192.0.2.1", "192.0.2.2-192.0.2.254"},
		{"the gateway first", "192.0.2.0/29", []string{"192.0.2.1"}, "192.0.2.2", "192.0.2.3-192.0.2.6"},
		{"the gateway last", "192.0.2.0/29", []string{"192.0.2.6"}, "192.0.2.1", "192.0.2.2-192.0.2.5"},
		{"overlapping, unsorted ranges", "192.0.2.0/28", []string{"192.0.2.8-192.0.2.10", "192.0.2.1", "192.0.2.4-192.0.2.9"}, "192.0.2.2", "192.0.2.11-192.0.2.14"},
		{"addresses outside of the network", "192.0.2.0/30", []string{"198.51.100.1", "192.0.1.0-192.0.2.1", "2001:db8::1"}, "192.0.2.2", ""},
		{"a range beyond the end", "192.0.2.0/29", []string{"192.0.2.3-192.0.3.9"}, "192.0.2.1", "192.0.2.2-192.0.2.2"},
		{"a full network", "192.0.2.0/30", []string{"192.0.2.1-192.0.2.2"}, "", ""},
		{"a network of one address", "192.0.2.0/32", nil, "", ""},
		{"the last network", "255.255.255.0/24", []string{"255.255.255.200-255.255.255.255"}, "255.255.255.1", "255.255.255.2-255.255.255.199"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var taken []v1alpha1.AddressRange
			for _, text := range tc.taken {
				r, err := v1alpha1.ParseAddressRange(text)
				if err != nil {
					t.Fatal(err)
				}
				taken = append(taken, r)
			}
			d := &Description{CIDR: tc.network, Gateway: "none", Network: "none", HostedCluster: "none", DNS: "none", Proxy: "none", Range: "none"}
			if err := d.choose(taken); (err == nil) != (tc.next != "") || d.DHCP != tc.next {
				t.Errorf("next: %s, %v, want %q", d.DHCP, err, tc.next)
			}
			d.Range = ""
			if err := d.choose(taken); tc.next != "" && ((err == nil) != (tc.largest != "") || d.Range != tc.largest) {
				t.Errorf("largest: %s, %v, want %q", d.Range, err, tc.largest)
			}
		})
	}
}
