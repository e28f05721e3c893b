package neighbours

import (
	"net/netip"
	"testing"
)

// TestLocalErrorsProveNothing connects from an address that this host does not have.
func TestLocalErrorsProveNothing(t *testing.T) {
	closed, foreign := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddr("192.0.2.99")
	if got := connect(t.Context(), closed.Addr(), closed); got != portRefuses {
		t.Errorf("a port on which nothing listens: %q", got)
	}
	if got := connect(t.Context(), foreign, closed); got != portUnknown {
		t.Errorf("a port that could not be probed: %q", got)
	}
	known := portState{}.observe(portAccepts, false)
	for range certainFailures {
		known = known.observe(portUnknown, true)
	}
	if known != (portState{known: portAccepts}) {
		t.Errorf("a port that can no longer be probed: %+v", known)
	}
}
