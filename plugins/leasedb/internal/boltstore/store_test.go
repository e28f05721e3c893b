package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/leasetest"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
	"github.com/densityops/oooi/test/lab"
)

func TestContract(t *testing.T) {
	leasetest.Contract(t, func(t *testing.T, ipv6 bool) store.Store {
		t.Helper()
		return openStore(t, filepath.Join(t.TempDir(), "leases.db"), fmt.Sprint("test/", ipv6))
	})
}

func openStore(t *testing.T, path, pool string) *Store {
	t.Helper()
	s, err := Open(path, pool)
	lab.Must(t, err)
	t.Cleanup(func() {
		lab.Report(t, s.Close())
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
	one, two := openStore(t, path, "net/ipv4"), openStore(t, path, "net/ipv6")
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

// createFile creates a file with 190 bindings and returns its content.
func createFile(t *testing.T, path string) []byte {
	t.Helper()
	s, err := Open(path, "test")
	lab.Must(t, err)
	for a := addr; a != netip.MustParseAddr("192.0.2.200"); a = a.Next() {
		if _, err := s.Put(t.Context(), store.Binding{Addr: a, Holder: "mac:020000000001", Used: used}); err != nil {
			t.Fatal(err)
		}
	}
	lab.Must(t, s.Close())
	content, err := os.ReadFile(path)
	lab.Must(t, err)
	return content
}

func TestDamagedFileIsRefused(t *testing.T) {
	content := createFile(t, filepath.Join(t.TempDir(), "whole.db"))
	tests := map[string]func([]byte) []byte{
		"no database": func([]byte) []byte { return []byte(strings.Repeat("this is no database\n", 1000)) },
		"truncated":   func(c []byte) []byte { return c[:len(c)/2] },
		"one page":    func(c []byte) []byte { return c[:4096] },
		"byte of a record": func(c []byte) []byte {
			return bytes.ReplaceAll(c, []byte("mac:020000000001"), []byte("mac:020000000002"))
		},
		"zero pages":        func(c []byte) []byte { clear(c[2*4096:]); return c },
		"both meta pages":   func(c []byte) []byte { clear(c[:2*4096]); return c },
		"one invalid page":  func(c []byte) []byte { copy(c[len(c)/4096/2*4096:], bytes.Repeat([]byte{0xa5}, 4096)); return c },
		"all pages invalid": func(c []byte) []byte { copy(c[2*4096:], bytes.Repeat([]byte{0xff}, len(c))); return c },
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "leases.db")
			lab.Must(t, os.WriteFile(path, damage(bytes.Clone(content)), 0o600))
			s, err := Open(path, "test")
			if err == nil {
				// The invalid page is not referenced, so the file is intact.
				if n := read(t, s).Len(); name != "one invalid page" || n != 190 {
					t.Errorf("the file was opened, with %d bindings", n)
				}
				return
			}
			for _, word := range []string{path, "damaged", "import"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q does not contain %q", err, word)
				}
			}
		})
	}
}

// TestFlippedBits flips one bit of a file. Open must either return an error that names the file or return a working
// store; the process must not crash.
func TestFlippedBits(t *testing.T) {
	content := createFile(t, filepath.Join(t.TempDir(), "whole.db"))
	rng := rand.New(rand.NewPCG(1, 2)) // reproducible
	refused, served, suspect := 0, 0, 0
	for n := range lab.Length(200, 5_000) {
		bit := 8*4096*rng.IntN(len(content)/4096) + rng.IntN(8*600) // near the beginning, where the page header is
		damaged := bytes.Clone(content)
		damaged[bit/8] ^= 1 << (bit % 8)
		path := filepath.Join(t.TempDir(), "leases.db")
		lab.Must(t, os.WriteFile(path, damaged, 0o600))
		s, err := Open(path, "test")
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), path) {
				t.Errorf("flip %d of bit %d: the error does not name the file: %v", n, bit, err)
			}
			continue
		}
		served++
		if s.Suspect() != "" {
			suspect++
		}
		if got := read(t, s).Len(); got != 190 && got != 0 && s.Suspect() == "" { // a changed pool name gives an empty pool
			t.Errorf("flip %d of bit %d: %d bindings", n, bit, got)
		}
		for a := netip.MustParseAddr("192.0.2.198"); a != netip.MustParseAddr("192.0.2.202"); a = a.Next() {
			b, err := s.Get(t.Context(), a)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("flip %d of bit %d: %v", n, bit, err)
			}
			b.Addr, b.Holder, b.Used = a, "mac:2", used
			if _, err := s.Put(t.Context(), b); err != nil {
				t.Errorf("flip %d of bit %d: %v", n, bit, err)
			}
		}
		lab.Report(t, s.Close())
	}
	if refused == 0 || served == suspect || suspect == 0 {
		t.Errorf("%d files were refused, %d opened, %d of them suspect", refused, served, suspect)
	}
}

// TestDamageWhileServing changes records of an open file.
func TestDamageWhileServing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	content := createFile(t, path)
	s := openStore(t, path, "test")
	lab.Must(t, os.WriteFile(path, bytes.ReplaceAll(content, []byte("mac:020000000001"), []byte("mac:020000000002")), 0o600))
	for name, err := range map[string]error{
		"Get": func() error { _, err := s.Get(t.Context(), addr); return err }(),
		"Put": func() error {
			_, err := s.Put(t.Context(), store.Binding{Addr: addr, Holder: "mac:1", Used: used, Revision: 1})
			return err
		}(),
		"Delete": s.Delete(t.Context(), store.Binding{Addr: addr, Revision: 1}),
	} {
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpenErrors covers causes other than a damaged file. Their errors must not suggest to move the file, which
// would lose the leases.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	lab.Must(t, os.WriteFile(file, nil, 0o600))
	for name, tt := range map[string]struct{ path, want string }{
		"no directory":        {filepath.Join(dir, "missing", "leases.db"), "create the directory"},
		"a directory":         {dir, "it is a directory; set the path of a file"},
		"a file as directory": {filepath.Join(file, "leases.db"), "create the directory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(tt.path, "test")
			if err == nil || !strings.Contains(err.Error(), tt.path) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "damaged") {
				t.Errorf("the error is %v, want %q in it", err, tt.want)
			}
		})
	}
	for errno, want := range map[syscall.Errno]string{
		syscall.EROFS:  "the file system is read-only",
		syscall.ENOSPC: "the disk is full",
		syscall.EDQUOT: "the disk is full",
		syscall.EACCES: "create the directory",
		syscall.EIO:    "check the kernel's log",
		syscall.EMFILE: "too many open files",
	} {
		err := openError("/leases.db", &os.PathError{Op: "open", Path: "/leases.db", Err: errno})
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "damaged") || !errors.Is(err, errno) {
			t.Errorf("the error for %v is %v", errno, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	record, err := encode(store.Binding{Addr: addr, Holder: "mac:1", Used: used, Revision: 1})
	lab.Must(f, err)
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
