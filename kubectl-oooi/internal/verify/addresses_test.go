package verify

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// load returns the site in testdata.
func load(t *testing.T) *subject {
	t.Helper()
	facts, err := site.Load(filepath.Join("testdata", "site"), func(text string) { t.Log(text) })
	if err != nil {
		t.Fatal(err)
	}
	s := newSubject(facts, "clusters/demo")
	if s == nil {
		t.Fatal("the site cannot be read")
	}
	return s
}

// TestAddressesOfThePod chooses and rejects addresses of the pod on the VLAN.
func TestAddressesOfThePod(t *testing.T) {
	s := load(t)
	free := s.freeAddresses()
	if len(free) != maxFree || free[0] != netip.MustParseAddr("192.0.2.199") || free[1] != netip.MustParseAddr("192.0.2.198") {
		t.Errorf("the free addresses are %s, want the last ones of the range", free)
	}
	for text, want := range map[string]string{
		"192.0.2.50": "", "192.0.2.150": "", "198.51.100.9": "is not in [192.0.2.0/24]", "192.0.2.255": "is the first or last one of 192.0.2.0/24, which no host may have",
		"192.0.2.0": "is the first or last one of 192.0.2.0/24, which no host may have", "192.0.2.1": "is that of the gateway, DHCP, DNS or the proxy", "192.0.2.4": "is that of the gateway, DHCP, DNS or the proxy",
	} {
		if got := s.unusable(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
