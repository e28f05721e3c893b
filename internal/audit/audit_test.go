package audit

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

var vm = netip.MustParseAddr("192.0.2.10")

func query(e *Entry) { e.Queries++ }

// TestEntriesExpireAfterAnHour counts from zero again after an hour without an event.
func TestEntriesExpireAfterAnHour(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := NewLog(func() time.Time { return now })
	for _, name := range []string{"Quay.io.", "quay.io", "example.com."} {
		l.Add(vm, name, query)
	}
	now = now.Add(40 * time.Minute)
	l.Add(vm, "quay.io", query)
	now = now.Add(40 * time.Minute)
	if got := l.Report().Entries; len(got) != 1 || got[0].Name != "quay.io" || got[0].Queries != 3 {
		t.Errorf("after 80 minutes: %+v, want only quay.io with 3 queries", got)
	}
	l.Add(vm, "example.com", query)
	if got := l.Report().Entries; len(got) != 2 || got[0].Queries != 1 {
		t.Errorf("after a pause of 80 minutes: %+v, want example.com with 1 query", got)
	}
}

// TestClientsCannotDisplaceOtherClients sends more names than are kept, and queries from more clients.
func TestClientsCannotDisplaceOtherClients(t *testing.T) {
	l := NewLog(time.Now)
	l.Add(vm, "quay.io", query)
	other := netip.MustParseAddr("192.0.2.11")
	for i := range 100 * maxNames {
		l.Add(other, fmt.Sprintf("%d.example.com", i), query)
	}
	if got := l.Report().Entries; len(got) != maxNames+1 || got[len(got)-1].Name != "quay.io" {
		t.Errorf("%d entries, the last one %+v; want %d, and the one of the other client", len(got), got[len(got)-1], maxNames+1)
	}
	for i := range 100 * maxClients {
		l.Add(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), "quay.io", query)
	}
	if got := len(l.Report().Entries); got != maxClients {
		t.Errorf("%d entries, want one for each of %d clients", got, maxClients)
	}
}
