package measure

import (
	"fmt"
	"strings"
	"time"
)

// Verdict says whether a target is met.
func Verdict(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

// Megabytes shows a number of bytes.
func Megabytes(n int) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }

// Milliseconds shows a time without its unit.
func Milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1e3) }

// Microseconds shows a time with its unit.
func Microseconds(d time.Duration) string { return fmt.Sprintf("%.1f us", d.Seconds()*1e6) }

// Rows returns the first three cells of each row in tables, for tests: what the row is of.
func Rows(tables string) []string {
	var rows []string
	for line := range strings.Lines(tables) {
		if cells := strings.Split(line, "|"); len(cells) > 4 {
			rows = append(rows, strings.TrimSpace(strings.Join(cells[1:4], "|")))
		}
	}
	return rows
}
