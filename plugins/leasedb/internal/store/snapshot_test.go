package store_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/snapshotfile"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
	"github.com/densityops/oooi/test/lab"
)

// read reads a snapshot file with the given content.
func read(t *testing.T, content []byte, pool string) (*store.Snapshot, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.json")
	lab.Must(t, os.WriteFile(path, content, 0o600))
	s := &store.Snapshot{}
	err := snapshotfile.Read(path, s, func() error { return s.Check(pool) })
	return s, err
}

// TestReadSnapshot reads a file as earlier releases write it.
func TestReadSnapshot(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := &store.Snapshot{
		Header: snapshotfile.Header{Version: 1, Written: now}, Pool: "net/ipv4", Revision: 7, Bindings: []store.Binding{
			{Addr: netip.MustParseAddr("192.0.2.10"), Holder: "demo/worker-0/vlan", Used: now, UID: "u", Revision: 7},
			{Addr: netip.MustParseAddr("192.0.2.11"), Holder: "mac:1", Used: now, Expires: now.Add(time.Hour), Revision: 6},
		},
	}
	got, err := read(t, []byte(`{"version":1,"pool":"net/ipv4","revision":7,"written":"2026-01-02T03:04:05Z","bindings":[`+
		`{"addr":"192.0.2.10","holder":"demo/worker-0/vlan","used":"2026-01-02T03:04:05Z","uid":"u","revision":7},`+
		`{"addr":"192.0.2.11","holder":"mac:1","expires":"2026-01-02T04:04:05Z","used":"2026-01-02T03:04:05Z","revision":6}]}`), "net/ipv4")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestInvalidSnapshots(t *testing.T) {
	tests := map[string]string{
		`{"version":1,"pool":"other/ipv4"}`:                                 "pool \"other/ipv4\"",
		`{"version":9,"pool":"net/ipv4"}`:                                   "version 9",
		`{"version":1,"pool":"net/ipv4","bindings":[{"addr":"192.0.2.1"}]}`: "binding",
		`{"version":1,"pool":"net/ipv4","bindings":[{"holder":"a"}]}`:       "binding",
	}
	for content, want := range tests {
		if _, err := read(t, []byte(content), "net/ipv4"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", content, err)
		}
	}
}

func FuzzReadSnapshot(f *testing.F) {
	f.Add([]byte(`{"version":1,"pool":"p","bindings":[{"addr":"192.0.2.1","holder":"a","used":"2026-01-01T00:00:00Z","revision":1}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		s, err := read(t, content, "p")
		if err != nil {
			return
		}
		for _, b := range s.Bindings {
			if !b.Addr.IsValid() || b.Holder == "" {
				t.Errorf("invalid binding %+v", b)
			}
		}
	})
}
