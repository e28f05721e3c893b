package lab

import (
	"os"
	"testing"
)

// Long reports whether tests run at full length: whole matrices, many clusters, outages as long as
// Kubernetes' timers. make test-long enables that with the environment variable OOOI_LAB_LONG. Otherwise
// tests run a part that covers the same behaviour.
func Long() bool { return os.Getenv("OOOI_LAB_LONG") != "" }

// NeedLong skips a test that runs only at full length.
func NeedLong(tb testing.TB) {
	tb.Helper()
	if !Long() {
		tb.Skip("runs only at full length: make test-long, or OOOI_LAB_LONG=yes")
	}
}

// Sample returns all items at full length, and otherwise every nth item, starting with the first.
func Sample[T any](items []T, n int) []T {
	if Long() {
		return items
	}
	var sample []T
	for i := 0; i < len(items); i += n {
		sample = append(sample, items[i])
	}
	return sample
}

// Length returns long at full length, and otherwise short.
func Length[T any](short, long T) T {
	if Long() {
		return long
	}
	return short
}
