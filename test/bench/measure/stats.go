// Package measure has the common parts of the benchmarks: processes, CPU times, an API server, statistics and formats.
package measure

import (
	"cmp"
	"fmt"
	"slices"
)

// An Estimate is the median of measurements, and the interval from Low to High that contains the true median with the
// given confidence.
type Estimate struct {
	Median, Low, High float64
	Confidence        float64
}

// minConfidence is the minimum confidence of an interval of six or more measurements. With fewer, no interval has it.
const minConfidence = 0.95

// EstimateOf returns the median and the smallest interval with minConfidence. It uses order statistics, which need no
// assumption about the distribution: the true median lies between the k-th smallest and the k-th largest of n
// independent values unless fewer than k of them are on one side of it, and each value is on either side with
// probability 1/2.
func EstimateOf(values []float64) Estimate {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	e := Estimate{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2}
	combinations, fewer, all := 1.0, 0.0, 1.0
	for range n {
		all *= 2
	}
	for k := 1; k <= (n+1)/2; k++ {
		fewer += combinations / all // probability that fewer than k values are on one side
		combinations *= float64(n-k+1) / float64(k)
		if confidence := 1 - 2*fewer; k == 1 || confidence >= minConfidence {
			e.Low, e.High, e.Confidence = sorted[k-1], sorted[n-k], max(0, confidence)
		}
	}
	return e
}

// Quantile returns the smallest value such that at least the fraction q of all values do not exceed it.
// values need not be sorted, and must not be empty.
func Quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	rank := int(q * float64(len(sorted)))
	if float64(rank) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[max(rank, 1)-1]
}

// String returns the median and the interval: "MEDIAN (LOW-HIGH)".
func (e Estimate) String() string { return fmt.Sprintf("%.3f (%.3f-%.3f)", e.Median, e.Low, e.High) }
