package pool

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/densityops/oooi/api/v1alpha1"
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

func TestRanges(t *testing.T) {
	tests := map[string]struct {
		ranges, excluded string
		want             string // the addresses, or err
		err              string
	}{
		"one range":              {"192.0.2.1-192.0.2.3", "", "192.0.2.1 192.0.2.2 192.0.2.3", ""},
		"in any order":           {"192.0.2.9 192.0.2.1-192.0.2.2", "", "192.0.2.1 192.0.2.2 192.0.2.9", ""},
		"across a byte":          {"192.0.2.254-192.0.3.1", "", "192.0.2.254 192.0.2.255 192.0.3.0 192.0.3.1", ""},
		"exclusion":              {"192.0.2.1-192.0.2.4", "192.0.2.2-192.0.2.3", "192.0.2.1 192.0.2.4", ""},
		"exclusions at the ends": {"192.0.2.1-192.0.2.4", "192.0.2.4 192.0.2.0-192.0.2.1", "192.0.2.2 192.0.2.3", ""},
		"overlapping exclusions": {"192.0.2.1-192.0.2.9", "192.0.2.2-192.0.2.6 192.0.2.4-192.0.2.8", "192.0.2.1 192.0.2.9", ""},
		"one range excluded":     {"192.0.2.1-192.0.2.4 192.0.2.8", "192.0.2.1-192.0.2.7", "192.0.2.8", ""},
		"the last address":       {"255.255.255.254-255.255.255.255", "255.255.255.255", "255.255.255.254", ""},
		"IPv6":                   {"2001:db8::ffff-2001:db8::1:1", "2001:db8::1:0", "2001:db8::ffff 2001:db8::1:1", ""},
		"overlapping ranges":     {"192.0.2.1-192.0.2.4 192.0.2.4", "", "", "overlap"},
		"everything excluded":    {"192.0.2.1", "192.0.2.0-192.0.2.9", "", "excluded"},
		"too many":               {"10.0.0.0-10.255.255.255", "", "", "more than"},
		"too many together":      {"10.0.0.0-10.15.255.255 10.16.0.0", "", "", "more than"},
		"more than 64 bits":      {"2001:db8::-2001:db8:1::", "", "", "more than"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			all, err := NewRanges(parseAll(t, tt.ranges), parseAll(t, tt.excluded))
			if tt.err != "" || err != nil {
				if err == nil || tt.err == "" || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got error %v", err)
				}
				return
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
						t.Errorf("the number of %v is that of %v", beside, all.Addr(n))
					}
				}
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("got %s, want %s", text, tt.want)
			}
		})
	}
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
