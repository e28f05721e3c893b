package store_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

func snapshot() store.Snapshot {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return store.Snapshot{Pool: "net/ipv4", Revision: 7, Written: now, Bindings: []store.Binding{
		{Addr: netip.MustParseAddr("192.0.2.10"), Holder: "demo/worker-0/vlan", Used: now, UID: "u", Revision: 7},
		{Addr: netip.MustParseAddr("192.0.2.11"), Holder: "mac:1", Used: now, Expires: now.Add(time.Hour), Revision: 6},
	}}
}

func TestSnapshotRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot.json")
	if _, err := store.ReadSnapshot(path, "net/ipv4"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	for range 2 { // the second write replaces the first file
		if err := store.WriteSnapshot(path, snapshot()); err != nil {
			t.Fatal(err)
		}
	}
	got, err := store.ReadSnapshot(path, "net/ipv4")
	want := snapshot()
	want.Version = got.Version
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("the directory contains %v, %v; want one file", files, err)
	}
}

func TestInvalidSnapshots(t *testing.T) {
	tests := map[string]string{
		`{"version":1,"pool":"other/ipv4"}`:                                 "pool \"other/ipv4\"",
		`{"version":9,"pool":"net/ipv4"}`:                                   "version 9",
		`{"version":1,"pool":"net/ipv4","bindings":[{"addr":"192.0.2.1"}]}`: "binding",
		`{"version":1,"pool":"net/ipv4","bindings":[{"holder":"a"}]}`:       "binding",
		`{"version":1`: "decoding",
		``:             "decoding",
	}
	for content, want := range tests {
		path := filepath.Join(t.TempDir(), "snapshot.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := store.ReadSnapshot(path, "net/ipv4"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", content, err)
		}
	}
	if err := store.WriteSnapshot(filepath.Join(t.TempDir(), "missing", "x"), snapshot()); err == nil {
		t.Error("writing to a directory that does not exist is no error")
	}
}

func FuzzReadSnapshot(f *testing.F) {
	f.Add([]byte(`{"version":1,"pool":"p","bindings":[{"addr":"192.0.2.1","holder":"a","used":"2026-01-01T00:00:00Z","revision":1}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "s")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.ReadSnapshot(path, "p")
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
