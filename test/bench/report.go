package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
)

// target is what a comparison has to show.
type target string

// The targets of throughput.
const (
	targetFloor target = ">= 0.97"
	targetPeer  target = "> 1"
	targetFlat  target = "flat: >= 0.95"
)

// The other targets.
const (
	targetMemory   = 20 << 20              // bytes, at targetClusters
	targetDelay    = 50 * time.Millisecond // at the 99th percentile, from the watch event
	targetClusters = 1000                  // the number of hosted clusters of both
)

// met reports whether a ratio is what the target asks for.
func (t target) met(ratio float64) bool {
	switch t {
	case targetFloor:
		return ratio >= 0.97
	case targetFlat:
		return ratio >= 0.95
	default:
		return ratio > 1
	}
}

// Where objects come from.
const (
	sourceAPI    = "API server"
	sourceFolder = "folder"
)

// memory is the resident memory of a server, in bytes.
type memory struct {
	clusters int
	source   string
	rest     int // a while after its start
	used     int // after queries
	changed  int // after changes; 0 where there were none
}

// report is everything that was measured.
type report struct {
	options
	apart       bool // server and load have a CPU each
	comparisons []comparison
	baseline    memory
	memory      []memory
	delays      []delays
}

func newReport(opts options, apart bool) report { return report{options: opts, apart: apart} }

// markdown returns the tables.
func (r report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d CPUs, loopback, %s/%s, %s. ", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if r.apart {
		out.WriteString("Server and dnsperf on one CPU each. ")
	}
	fmt.Fprintf(&out, "%d rounds of %s a side.\n", r.rounds, r.slice)
	r.throughput(&out)
	r.memories(&out)
	r.changed(&out)
	return out.String()
}

func (r report) throughput(out *strings.Builder) {
	fmt.Fprintf(out, `
### Queries a second

| hosted clusters | view | against | hcpviews | other | ratio | CPU a query | other | ratio | else ran | target | |
|--:|---|---|--:|--:|---|--:|--:|---|--:|---|---|
`)
	for _, c := range r.comparisons {
		fmt.Fprintf(out, "| %d | %s | %s | %.0f | %.0f | %s | %s | %s | %s | %.0f %% | %s | %s |\n",
			c.clusters, c.view, c.rival, c.qps[0], c.qps[1], c.ratio, measure.Microseconds(c.cpu[0]), measure.Microseconds(c.cpu[1]),
			c.cpuRatio, 100*c.disturbed, c.target, measure.Verdict(c.target.met(c.ratio.Median)))
	}
	if len(r.comparisons) > 0 {
		fmt.Fprintf(out, `
Medians of all rounds. A ratio above 1 is in favour of hcpviews; behind it, the interval that holds the true median
with a confidence of %.1f %%. "Else ran" is what other programs took meanwhile, of one CPU.
`, 100*r.comparisons[0].ratio.Confidence)
	}
}

func (r report) memories(out *strings.Builder) {
	fmt.Fprintf(out, `
### Memory (RSS), MB over the same binary with no hosted cluster

| hosted clusters | from | at rest | after queries | after changes | target | |
|--:|---|--:|--:|--:|---|---|
`)
	for _, m := range r.memory {
		changed, goal, result := "", "", ""
		worst := max(m.rest-r.baseline.rest, m.used-r.baseline.used)
		if m.changed > 0 {
			changed = measure.Megabytes(m.changed - r.baseline.used)
			worst = max(worst, m.changed-r.baseline.used)
		}
		if m.clusters == targetClusters && m.source == sourceAPI {
			goal, result = "<= "+measure.Megabytes(targetMemory), measure.Verdict(worst <= targetMemory)
		}
		fmt.Fprintf(out, "| %d | %s | %s | %s | %s | %s | %s |\n", m.clusters, m.source,
			measure.Megabytes(m.rest-r.baseline.rest), measure.Megabytes(m.used-r.baseline.used), changed, goal, result)
	}
	fmt.Fprintf(out, "\nWith none it has %s MB at rest and %s MB after queries.\n", measure.Megabytes(r.baseline.rest), measure.Megabytes(r.baseline.used))
}

func (r report) changed(out *strings.Builder) {
	fmt.Fprintf(out, `
### From a change to the first right answer, ms

| hosted clusters | changes | from | p50 | p99 | max | target | |
|--:|--:|---|--:|--:|--:|---|---|
`)
	for _, d := range r.delays {
		goal, result := "", ""
		if d.clusters == targetClusters {
			goal, result = "p99 < "+measure.Milliseconds(targetDelay), measure.Verdict(measure.Quantile(d.event, 0.99) < targetDelay)
		}
		row := func(from string, values []time.Duration, goal, result string) {
			fmt.Fprintf(out, "| %d | %d | %s | %s | %s | %s | %s | %s |\n", d.clusters, len(values), from,
				measure.Milliseconds(measure.Quantile(values, 0.5)), measure.Milliseconds(measure.Quantile(values, 0.99)), measure.Milliseconds(measure.Quantile(values, 1)), goal, result)
		}
		row("our own watch's event", d.event, goal, result)
		row("the API server's reply to the writer", d.reply, "", "")
		fmt.Fprintf(out, "\nThe answer was asked for every %s ms.\n", measure.Milliseconds(measure.Quantile(d.poll, 0.5)))
	}
}
