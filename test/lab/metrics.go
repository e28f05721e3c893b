package lab

import (
	"strconv"
	"strings"
	"testing"
)

// Metric returns the sum of a metric's series in Prometheus' text format, or 0 without series. The metric is NAME or
// NAME{LABELS}; LABELS are pairs such as reason="x" that a series must have. It fails the test if the text is empty.
func Metric(tb testing.TB, page []byte, metric string) (total float64) {
	tb.Helper()
	if len(page) == 0 {
		tb.Fatalf("reading metric %s: no metrics", metric)
	}
	name, selected, _ := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
	for line := range strings.Lines(string(page)) {
		end := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if end < 0 || !strings.HasPrefix(line, name) {
			continue
		}
		found, labels, _ := strings.Cut(line[:end], "{")
		if found != name || !hasLabels(labels, selected) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[end:]), 64)
		if err != nil {
			tb.Fatalf("metric %s: %v", line, err)
		}
		total += value
	}
	return total
}

func hasLabels(labels, selected string) bool {
	for pair := range strings.SplitSeq(selected, ",") {
		if !strings.Contains(labels, pair) {
			return false
		}
	}
	return true
}
