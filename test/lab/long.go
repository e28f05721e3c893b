package lab

import (
	"os"
	"testing"
)

// Long reports whether tests run at full length, as make test-long has them by the environment
// variable OOOI_LAB_LONG: whole matrices, many clusters, outages as long as a timer of Kubernetes.
// Otherwise they run a part that shows the same behaviour.
func Long() bool { return os.Getenv("OOOI_LAB_LONG") != "" }

// NeedLong skips a test that runs only at full length.
func NeedLong(tb testing.TB) {
	tb.Helper()
	if !Long() {
		tb.Skip("runs only at full length: make test-long, or OOOI_LAB_LONG=yes")
	}
}

// Sample returns all items in a long test, and otherwise every nth of them, beginning with the first.
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

// Length is one of two values: of a long test, or of one that is not.
func Length[T any](short, long T) T {
	if Long() {
		return long
	}
	return short
}
