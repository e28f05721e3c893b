package bench

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A target is a required relation to a limit. The zero target is none.
type target struct {
	relation string // ">=", ">" or "<="
	limit    float64
}

// cells returns the last two cells of a row: the target, and whether it is met.
func (t target) cells(value float64) string {
	if t.relation == "" {
		return " | |"
	}
	met := value <= t.limit
	switch t.relation {
	case ">=":
		met = value >= t.limit
	case ">":
		met = value > t.limit
	}
	verdict := "met"
	if !met {
		verdict = "**missed**"
	}
	return fmt.Sprintf(" %s %g | %s |", t.relation, t.limit, verdict)
}

// A report has the results of a part.
type report struct {
	title       string
	comparisons []comparison
	times       []string // rows
	figures     []string // rows
}

// addTimes adds the distribution of times to the report, with targets in milliseconds of the median and the 99th percentile.
func (r *report) addTimes(what string, times []time.Duration, median, p99 target) {
	at := func(q float64) float64 { return milliseconds(quantile(times, q)) }
	r.times = append(r.times, fmt.Sprintf("| %s | %d | %.1f |%s %.1f |%s %.1f |",
		what, len(times), at(0.5), median.cells(at(0.5)), at(0.99), p99.cells(at(0.99)), at(1)))
}

// addFigure adds a single value to the report.
func (r *report) addFigure(what string, value float64, unit string, t target) {
	r.figures = append(r.figures, fmt.Sprintf("| %s | %.2f | %s |%s", what, value, unit, t.cells(value)))
}

// markdown returns the tables.
func (r *report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n### %s: %d CPUs, %s/%s, %s\n", r.title, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if len(r.comparisons) > 0 {
		out.WriteString(`
| what | of | against | per second | its | ratio | CPU, us | its | ratio | latency, ms | its | target | |
|---|---|---|--:|--:|---|--:|--:|---|--:|--:|---|---|
`)
		for _, c := range r.comparisons {
			out.WriteString(c.row() + "\n")
		}
		last := r.comparisons[len(r.comparisons)-1]
		fmt.Fprintf(&out, "\nMedians of %d rounds. A ratio above 1 is in favour of the first; in parentheses, the interval that contains the true median with a\nconfidence of %.1f %%.\n",
			len(last.rounds), 100*estimateOf(make([]float64, len(last.rounds))).confidence)
	}
	for _, table := range []struct {
		head string
		rows []string
	}{
		{"| from a change, ms | changes | p50 | target | | p99 | target | | max |\n|---|--:|--:|---|---|--:|---|---|--:|\n", r.times},
		{"| figure | value | unit | target | |\n|---|--:|---|---|---|\n", r.figures},
	} {
		if len(table.rows) > 0 {
			out.WriteString("\n" + table.head + strings.Join(table.rows, "\n") + "\n")
		}
	}
	return out.String()
}

func TestEstimate(t *testing.T) {
	var values []float64
	for i := range 12 {
		values = append(values, float64((i*5)%12)) // 0 to 11, mixed
	}
	for _, tc := range []struct {
		values            []float64
		median, low, high float64
		confidence        float64
	}{
		{values[:1], 0, 0, 0, 0},
		{[]float64{3, 1}, 2, 1, 3, 0.5},
		{[]float64{3, 1, 2}, 2, 1, 3, 0.75},
		{values, 5.5, 2, 9, 0.9614}, // the third lowest and the third highest value
	} {
		e := estimateOf(tc.values)
		if e.median != tc.median || e.low != tc.low || e.high != tc.high || e.confidence < tc.confidence || e.confidence > tc.confidence+0.001 {
			t.Errorf("of %v: %+v, want %+v", tc.values, e, tc)
		}
	}
	for q, want := range map[float64]int{0: 10, 0.2: 10, 0.5: 30, 0.8: 40, 0.99: 50, 1: 50} {
		if got := quantile([]int{50, 10, 30, 20, 40}, q); got != want {
			t.Errorf("quantile %v: %d, want %d", q, got, want)
		}
	}
}

// TestReport checks ratios and verdicts of a report with known samples.
func TestReport(t *testing.T) {
	of := func(operations int, cpu time.Duration) sample {
		return sample{operations: operations, took: time.Second, cpu: cpu, latency: 2 * time.Millisecond}
	}
	r := report{title: "Title"}
	for _, goal := range []target{{">=", 2}, {">", 2}, {"<=", 1}} {
		r.comparisons = append(r.comparisons, comparison{"1", [2]string{"ours", "its"}, goal, [][2]sample{{of(200, 2000*time.Microsecond), of(100, 4000*time.Microsecond)}}})
	}
	r.addTimes("a change", []time.Duration{time.Millisecond, 3 * time.Millisecond}, target{"<=", 1}, target{"<=", 2})
	r.addFigure("memory", 1.5, "MB", target{})
	const row = "| 1 | ours | its | 200 | 100 | 2.000 (2.000-2.000) | 10.0 | 40.0 | 4.000 (4.000-4.000) | 2.00 | 2.00 |"
	for _, want := range []string{
		row + " >= 2 | met |", row + " > 2 | **missed** |", row + " <= 1 | **missed** |",
		"| a change | 2 | 1.0 | <= 1 | met | 3.0 | <= 2 | **missed** | 3.0 |", "| memory | 1.50 | MB | | |",
	} {
		if got := r.markdown(); !strings.Contains(got, want+"\n") {
			t.Errorf("no row %q in\n%s", want, got)
		}
	}
}
