package reuse_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/densityops/oooi/plugins/internal/reuse"
)

// TestValues carries values over between random lists of keys. Each value has its key and the round of its creation.
func TestValues(t *testing.T) {
	type value struct{ key, round int }
	random := rand.New(rand.NewPCG(1, 2))
	var before []int
	var values []*value
	for round := range 3000 {
		now := slices.Clone(before)
		switch random.IntN(4) {
		case 0:
			now = random.Perm(random.IntN(8))
		case 1: // replaces keys at their positions
			for i := range now {
				if random.IntN(3) == 0 {
					now[i] = 100*round + i + 10
				}
			}
		case 2:
			now = slices.Insert(now, random.IntN(len(now)+1), 100*round+9)
		}
		var dropped []*value
		next := reuse.Values(before, values, now, func(key int) int { return key }, func(key int) *value { return &value{key, round} }, func(v *value) { dropped = append(dropped, v) })
		if len(next) != len(now) {
			t.Fatalf("%d values for %v", len(next), now)
		}
		for i, key := range now {
			if at := slices.Index(before, key); at >= 0 && next[i] != values[at] {
				t.Fatalf("from %v to %v: the value of %d is not reused", before, now, key)
			} else if *next[i] != (value{key, next[i].round}) || at < 0 && next[i].round != round {
				t.Fatalf("from %v to %v: %d has the value %v", before, now, key, *next[i])
			}
		}
		for i, key := range before {
			if gone := !slices.Contains(now, key); gone != slices.Contains(dropped, values[i]) {
				t.Fatalf("from %v to %v: the value of %d is dropped: %t", before, now, key, !gone)
			}
		}
		if slices.Equal(before, now) && len(now) > 0 && &next[0] != &values[0] {
			t.Fatalf("the values of the same keys %v are copied", now)
		}
		before, values = now, next
	}
}
