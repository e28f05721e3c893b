// Package reuse carries the values of one list of keys over to the next.
package reuse

// Values returns the values of the elements in now. It reuses the value in values for a key in before, and calls
// build for other keys. It passes values whose keys are not in now to drop. Keys must be unique in each list. If few
// keys differ, at the same position in both lists, it costs little more than copying the values; if none differs, the
// result is values itself.
func Values[E, K comparable, V any](before []E, values []V, now []E, key func(E) K, build func(E) V, drop func(V)) []V {
	same := func(a, b E) bool { return a == b || key(a) == key(b) }
	first := 0
	for first < len(before) && first < len(now) && same(before[first], now[first]) {
		first++
	}
	if first == len(before) && first == len(now) {
		return values
	}
	after := 0
	for after < len(before)-first && after < len(now)-first && same(before[len(before)-1-after], now[len(now)-1-after]) {
		after++
	}
	next := make([]V, len(now))
	copy(next, values[:first])
	copy(next[len(now)-after:], values[len(before)-after:])

	aligned := len(before) == len(now)
	old := map[K]V{}
	for i := first; i < len(before)-after; i++ {
		if aligned && same(before[i], now[i]) {
			next[i] = values[i]
		} else {
			old[key(before[i])] = values[i]
		}
	}
	for i := first; i < len(now)-after; i++ {
		if aligned && same(before[i], now[i]) {
			continue
		}
		if value, ok := old[key(now[i])]; ok {
			next[i] = value
			delete(old, key(now[i]))
		} else {
			next[i] = build(now[i])
		}
	}
	for _, value := range old {
		drop(value)
	}
	return next
}
