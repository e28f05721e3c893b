// Package measure is what the benchmarks share: statistics, CPUs, and how numbers are shown.
package measure

import (
	"cmp"
	"fmt"
	"slices"
)

// Estimate is the median of some measurements with the interval that holds the
// true median with the confidence given.
type Estimate struct {
	Median, Low, High float64
	Confidence        float64
}

// wanted is the confidence that an interval has at least, if there are six
// measurements or more; with fewer no interval has it.
const wanted = 0.95

// EstimateOf uses order statistics, which assume nothing of the distribution: the
// k-th smallest and the k-th largest of n independent values have the median
// between them unless fewer than k lie on one side of it, and each lies on either
// side like a coin.
func EstimateOf(values []float64) Estimate {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	e := Estimate{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2}
	combinations, fewer, all := 1.0, 0.0, 1.0
	for range n {
		all *= 2
	}
	for k := 1; k <= (n+1)/2; k++ {
		fewer += combinations / all // P(less than k heads)
		combinations *= float64(n-k+1) / float64(k)
		if confidence := 1 - 2*fewer; k == 1 || confidence >= wanted {
			e.Low, e.High, e.Confidence = sorted[k-1], sorted[n-k], max(0, confidence)
		}
	}
	return e
}

// Quantile returns the smallest value that at least the fraction q of all do not exceed.
func Quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	rank := int(q * float64(len(sorted)))
	if float64(rank) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[max(rank, 1)-1]
}

// String is the median with its interval.
func (e Estimate) String() string { return fmt.Sprintf("%.3f (%.3f-%.3f)", e.Median, e.Low, e.High) }
