package boltstore

import (
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// BenchmarkPut measures durable writes of new bindings by 128 concurrent callers.
func BenchmarkPut(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "leases.db"), "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	var next atomic.Uint32
	b.SetParallelism(64)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := next.Add(1)
			// Scattered, as addresses chosen by a hash are.
			a := netip.AddrFrom4([4]byte{10, byte(n * 37), byte(n >> 8), byte(n)})
			if _, err := s.Put(b.Context(), store.Binding{Addr: a, Holder: "mac:01020000000001", Used: used}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
}
