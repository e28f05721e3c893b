package neighbours

import (
	"net/netip"
	"testing"
)

// TestLocalErrorsProveNothing connects from an address that this host does not have.
func TestLocalErrorsProveNothing(t *testing.T) {
	closed, foreign := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddr("192.0.2.99")
	r := PortResult{Address: closed, Result: Accepted}
	if r.connect(t.Context(), foreign); r != (PortResult{Address: closed, Result: Accepted}) {
		t.Errorf("a port that could not be probed: %+v", r)
	}
	if r.connect(t.Context(), closed.Addr()); r != (PortResult{Address: closed, Result: Refused, Failures: 1}) {
		t.Errorf("a port on which nothing listens: %+v", r)
	}
}
