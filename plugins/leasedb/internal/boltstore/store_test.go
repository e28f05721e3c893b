package boltstore

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/leasetest"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

func TestContract(t *testing.T) {
	leasetest.Contract(t, func(t *testing.T, ipv6 bool) store.Store {
		t.Helper()
		return opened(t, filepath.Join(t.TempDir(), "leases.db"), fmt.Sprint("test/", ipv6))
	})
}

func opened(t *testing.T, path, pool string) *Store {
	t.Helper()
	s, err := Open(path, pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func read(t *testing.T, s *Store) *leasetest.Sink {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sink := &leasetest.Sink{}
	s.Run(ctx, sink)
	return sink
}

var (
	addr = netip.MustParseAddr("192.0.2.10")
	used = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func TestPoolsShareAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	one, two := opened(t, path, "net/ipv4"), opened(t, path, "net/ipv6")
	if _, err := one.Put(t.Context(), store.Binding{Addr: addr, Holder: "mac:1", Used: used}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, two).Len(); got != 0 {
		t.Errorf("the other pool sees %d bindings", got)
	}
	if got := read(t, one).Holder(addr); got != "mac:1" {
		t.Errorf("got %q", got)
	}
}

// filled makes a file with bindings in it and returns its content.
func filled(t *testing.T, path string) []byte {
	t.Helper()
	s, err := Open(path, "test")
	if err != nil {
		t.Fatal(err)
	}
	for a := addr; a != netip.MustParseAddr("192.0.2.200"); a = a.Next() {
		if _, err := s.Put(t.Context(), store.Binding{Addr: a, Holder: "mac:020000000001", Used: used}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestDamagedFileIsRefused(t *testing.T) {
	content := filled(t, filepath.Join(t.TempDir(), "whole.db"))
	tests := map[string]func([]byte) []byte{
		"no database":     func([]byte) []byte { return []byte(strings.Repeat("this is no database\n", 1000)) },
		"cut off":         func(c []byte) []byte { return c[:len(c)/2] },
		"cut to one page": func(c []byte) []byte { return c[:4096] },
		"a record's byte": func(c []byte) []byte {
			return bytes.ReplaceAll(c, []byte("mac:020000000001"), []byte("mac:020000000002"))
		},
		"pages of zeros":      func(c []byte) []byte { clear(c[2*4096:]); return c },
		"both heads":          func(c []byte) []byte { clear(c[:2*4096]); return c },
		"a page of nonsense":  func(c []byte) []byte { copy(c[len(c)/4096/2*4096:], bytes.Repeat([]byte{0xa5}, 4096)); return c },
		"all pages, nonsense": func(c []byte) []byte { copy(c[2*4096:], bytes.Repeat([]byte{0xff}, len(c))); return c },
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "leases.db")
			if err := os.WriteFile(path, damage(bytes.Clone(content)), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(path, "test")
			if err == nil {
				// Damage to a page that nothing points to is none.
				if n := read(t, s).Len(); name != "a page of nonsense" || n != 190 {
					t.Errorf("it was opened, with %d bindings", n)
				}
				return
			}
			for _, word := range []string{path, "damaged", "import"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q does not say %q", err, word)
				}
			}
		})
	}
}

func TestFileThatCannotBeMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "leases.db")
	if _, err := Open(path, "test"); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "must exist") {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	record, err := encode(store.Binding{Addr: addr, Holder: "mac:1", Used: used, Revision: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(addr.AsSlice(), record)
	f.Add([]byte{1, 2, 3}, record)
	f.Add(addr.AsSlice(), []byte{})
	f.Fuzz(func(t *testing.T, key, record []byte) {
		b, err := decode(key, record)
		if err != nil {
			return
		}
		if !bytes.Equal(b.Addr.AsSlice(), key) || b.Holder == "" || b.Revision == 0 {
			t.Errorf("got %+v", b)
		}
	})
}
