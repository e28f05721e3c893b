package pool

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

func parseAll(t *testing.T, texts string) []v1alpha1.AddressRange {
	t.Helper()
	var list []v1alpha1.AddressRange
	for text := range strings.FieldsSeq(texts) {
		r, err := v1alpha1.ParseAddressRange(text)
		lab.Must(t, err)
		list = append(list, r)
	}
	return list
}

// TestRanges runs the transcript testdata/ranges/ranges.txt: the output of "ranges RANGE... [without RANGE...]" are the addresses.
func TestRanges(t *testing.T) {
	golden.Transcript(t, "testdata/ranges/ranges.txt", func(line string) []string {
		ranges, excluded, _ := strings.Cut(strings.TrimPrefix(line, "ranges "), " without ")
		all, err := NewRanges(parseAll(t, ranges), parseAll(t, excluded))
		if err != nil {
			return []string{err.Error()}
		}
		var got []string
		for i := range all.Size() {
			a := all.Addr(i)
			got = append(got, a.String())
			if n, ok := all.Number(a); !ok || n != i {
				t.Errorf("%v has number %d, %v; want %d", a, n, ok, i)
			}
			for _, beside := range []netip.Addr{a.Prev(), a.Next()} {
				if n, ok := all.Number(beside); ok && all.Addr(n) != beside {
					t.Errorf("%v and %v have the same number", beside, all.Addr(n))
				}
			}
		}
		return []string{strings.Join(got, " ")}
	})
}

func TestBitmap(t *testing.T) {
	for _, size := range []int{1, 63, 64, 65, 200} {
		b := newBitmap(size)
		for i := range size {
			start := (i * 7) % size
			n, ok := b.free(start)
			if !ok || n >= size {
				t.Fatalf("size %d: got %d, %v although %d are free", size, n, ok, size-i)
			}
			b.set(n, true)
			b.set(n, true) // no effect
		}
		if n, ok := b.free(0); ok {
			t.Errorf("size %d: %d is free, want none", size, n)
		}
		b.set(size/2, false)
		if n, ok := b.free(size - 1); !ok || n != size/2 {
			t.Errorf("size %d: got %d, %v", size, n, ok)
		}
	}
}
