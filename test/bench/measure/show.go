package measure

import (
	"fmt"
	"strings"
	"time"
)

// Verdict returns "met" or "**missed**".
func Verdict(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

// Megabytes formats a number of bytes in MB (2^20 bytes), without the unit.
func Megabytes(n int) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }

// Milliseconds formats a duration in milliseconds, without the unit.
func Milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1e3) }

// Microseconds formats a duration in microseconds, with the unit.
func Microseconds(d time.Duration) string { return fmt.Sprintf("%.1f us", d.Seconds()*1e6) }

// Rows returns the first three cells of each row in Markdown tables, as "A | B | C". They identify the row in tests.
func Rows(tables string) []string {
	var rows []string
	for line := range strings.Lines(tables) {
		if cells := strings.Split(line, "|"); len(cells) > 4 {
			rows = append(rows, strings.TrimSpace(strings.Join(cells[1:4], "|")))
		}
	}
	return rows
}
