package control

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestSilentServices connects to an address on which nothing listens, twice, and then to one that accepts connections.
func TestSilentServices(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	open := netip.MustParseAddrPort(listener.Addr().String())
	closed := netip.MustParseAddrPort("127.0.0.1:1")
	p, s, start := newProber(), &Services{}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	probe := func(infra string, at time.Duration, addresses ...netip.AddrPort) {
		results := map[netip.AddrPort]error{}
		for _, a := range addresses {
			results[a] = p.connect(t.Context(), a)
		}
		s.record(infra, results, start.Add(at))
	}
	probe("clusters/demo", 0, open, closed)
	if list := s.List(); len(list) > 0 {
		t.Errorf("after one failure: %+v", list)
	}
	probe("clusters/demo", time.Second, open, closed)
	probe("clusters/other", time.Second, open)
	list := s.List()
	if len(list) != 1 || list[0].Infra != "clusters/demo" || list[0].Address != closed || !list[0].Since.Equal(start) || list[0].Error == "" {
		t.Errorf("after two failures: %+v", list)
	}
	probe("clusters/demo", 2*time.Second, open)
	if list := s.List(); len(list) > 0 {
		t.Errorf("after a connection: %+v", list)
	}
}
