package model

import (
	"net/netip"
	"slices"
	"testing"
)

func TestPermittedEgressAddresses(t *testing.T) {
	policy := &Egress{
		Allow: prefixes("10.20.0.0/16", "198.18.0.0/15", "fd00:1::/64", "169.254.0.0/16", "64:ff9b::/96"),
		Deny:  prefixes("10.20.30.0/24", "93.184.216.0/24"),
	}
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "10.20.1.1": true, "198.18.0.1": true, "fd00:1::5": true,
		"10.20.30.1": false, "93.184.216.34": false, "10.21.0.1": false, "172.30.0.1": false, "192.168.1.1": false,
		"127.0.0.1": false, "::1": false, "0.0.0.0": false, "::": false, "169.254.169.254": false, "fe80::1": false, "224.0.0.1": false,
		"100.64.0.1": false, "255.255.255.255": false, "fd00:2::1": false, "::ffff:10.0.0.1": false, "::ffff:8.8.8.8": true,
		"::10.0.0.1": false, "2002:a00:1::1": false, "2001:0:a00:1::1": false, "64:ff9c::a00:1": false,
	} {
		if got := policy.Permits(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t", address, got)
		}
		a := netip.MustParseAddr(address).Unmap()
		inBlocks := slices.ContainsFunc(policy.Blocks(), func(b NetworkBlock) bool {
			return b.Contains(a) && !slices.ContainsFunc(b.Except, func(p netip.Prefix) bool { return p.Contains(a) })
		})
		// NetworkPolicies do not apply to the addresses of the host itself.
		if inBlocks != want && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() {
			t.Errorf("%s: %t in the blocks", address, inBlocks)
		}
	}
	if policy.Permits(netip.Addr{}) {
		t.Error("an invalid address is permitted")
	}
}
