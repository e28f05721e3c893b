// Package reuse carries the values of one list of keys over to the next.
package reuse

// Values returns the values of the keys now. A key that is in before has the value that it has in values, others that
// which build returns. The values of keys that are not in now are passed to drop. Keys must be unique in each list. If
// few keys differ, and have the same position in both lists, the cost is little more than that of copying the values; if
// none differs, the result is values itself.
func Values[K comparable, V any](before []K, values []V, now []K, build func(K) V, drop func(V)) []V {
	first := 0
	for first < len(before) && first < len(now) && before[first] == now[first] {
		first++
	}
	if first == len(before) && first == len(now) {
		return values
	}
	after := 0
	for after < len(before)-first && after < len(now)-first && before[len(before)-1-after] == now[len(now)-1-after] {
		after++
	}
	next := make([]V, len(now))
	copy(next, values[:first])
	copy(next[len(now)-after:], values[len(before)-after:])

	aligned := len(before) == len(now)
	old := map[K]V{}
	for i := first; i < len(before)-after; i++ {
		if aligned && before[i] == now[i] {
			next[i] = values[i]
		} else {
			old[before[i]] = values[i]
		}
	}
	for i := first; i < len(now)-after; i++ {
		if aligned && before[i] == now[i] {
			continue
		}
		if value, ok := old[now[i]]; ok {
			next[i] = value
			delete(old, now[i])
		} else {
			next[i] = build(now[i])
		}
	}
	for _, value := range old {
		drop(value)
	}
	return next
}
