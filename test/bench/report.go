package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
)

// A target is the required ratio of a comparison.
type target string

// Targets of throughput.
const (
	targetFloor target = ">= 0.97"
	targetApps  target = ">= 0.95"
	targetPeer  target = "> 1"
	targetFlat  target = "flat: >= 0.95"
)

// Other targets.
const (
	targetMemory      = 10 << 20               // maximum bytes of a DNS pod of one Infra, with targetClusters
	targetDelay       = 8 * time.Millisecond   // maximum 99th percentile since the API server's reply, with targetClusters
	targetMedianDelay = 400 * time.Microsecond // maximum median
	targetBurst       = 100 * time.Millisecond // maximum since the API server's last reply
	targetClusters    = 1000
)

// met reports whether a ratio meets the target.
func (t target) met(ratio float64) bool {
	switch t {
	case targetFloor:
		return ratio >= 0.97
	case targetApps, targetFlat:
		return ratio >= 0.95
	default:
		return ratio > 1
	}
}

// Sources of objects.
const (
	sourceAPI    = "API server"
	sourceInfra  = "API server, as in the pod of one Infra"
	sourceFolder = "folder"
)

// memory is the resident memory of a server, in bytes.
type memory struct {
	clusters int
	source   string
	rest     int // at rest, after its start
	used     int // after queries
	changed  int // after changes; 0 if there were none
}

// A report has all results.
type report struct {
	options
	ownCPUs     bool // server and load have a CPU each
	comparisons []comparison
	baseline    memory
	memory      []memory
	delays      []delays
	bursts      []burst
}

func newReport(opts options, ownCPUs bool) report { return report{options: opts, ownCPUs: ownCPUs} }

// markdown returns the tables.
func (r report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d CPUs, loopback, %s/%s, %s. ", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if r.ownCPUs {
		out.WriteString("Server and dnsperf have one CPU each. ")
	}
	fmt.Fprintf(&out, "%d rounds of %s per side.\n", r.rounds, r.slice)
	r.throughputTable(&out)
	r.memoryTable(&out)
	r.delayTable(&out)
	r.burstTable(&out)
	return out.String()
}

func (r report) throughputTable(out *strings.Builder) {
	fmt.Fprintf(out, `
### Queries per second

| hosted clusters | view | against | hcpviews | other | ratio | CPU per query | other | ratio | other load | target | |
|--:|---|---|--:|--:|---|--:|--:|---|--:|---|---|
`)
	for _, c := range r.comparisons {
		fmt.Fprintf(out, "| %d | %s | %s | %.0f | %.0f | %s | %s | %s | %s | %.0f %% | %s | %s |\n",
			c.clusters, c.view, c.other, c.qps[0], c.qps[1], c.ratio, measure.Microseconds(c.cpu[0]), measure.Microseconds(c.cpu[1]),
			c.cpuRatio, 100*c.otherLoad, c.target, measure.Verdict(c.target.met(c.ratio.Median)))
	}
	if len(r.comparisons) > 0 {
		fmt.Fprintf(out, `
Medians of all rounds. A ratio above 1 is in favour of hcpviews; in parentheses, the interval that contains the true
median with a confidence of %.1f %%. "Other load" is the CPU use of other programs, of one CPU.
`, 100*r.comparisons[0].ratio.Confidence)
	}
}

func (r report) memoryTable(out *strings.Builder) {
	fmt.Fprintf(out, `
### Memory (RSS), MB more than the same binary without hosted clusters

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
		if m.clusters == targetClusters && m.source == sourceInfra {
			goal, result = "<= "+measure.Megabytes(targetMemory), measure.Verdict(worst <= targetMemory)
		}
		fmt.Fprintf(out, "| %d | %s | %s | %s | %s | %s | %s |\n", m.clusters, m.source,
			measure.Megabytes(m.rest-r.baseline.rest), measure.Megabytes(m.used-r.baseline.used), changed, goal, result)
	}
	fmt.Fprintf(out, "\nWithout hosted clusters it has %s MB at rest and %s MB after queries.\n", measure.Megabytes(r.baseline.rest), measure.Megabytes(r.baseline.used))
}

func (r report) delayTable(out *strings.Builder) {
	fmt.Fprintf(out, `
### From a change to the first right answer, ms

| hosted clusters | changes | from | p50 | p99 | max | target | |
|--:|--:|---|--:|--:|--:|---|---|
`)
	for _, d := range r.delays {
		goal, result := "", ""
		if d.clusters == targetClusters {
			goal = fmt.Sprintf("p50 <= %s, p99 <= %s", measure.Milliseconds(targetMedianDelay), measure.Milliseconds(targetDelay))
			result = measure.Verdict(measure.Quantile(d.reply, 0.5) <= targetMedianDelay && measure.Quantile(d.reply, 0.99) <= targetDelay)
		}
		row := func(from string, values []time.Duration, goal, result string) {
			fmt.Fprintf(out, "| %d | %d | %s | %s | %s | %s | %s | %s |\n", d.clusters, len(values), from,
				measure.Milliseconds(measure.Quantile(values, 0.5)), measure.Milliseconds(measure.Quantile(values, 0.99)), measure.Milliseconds(measure.Quantile(values, 1)), goal, result)
		}
		row(d.what+"watch event", d.event, "", "")
		row(d.what+"API server's reply", d.reply, goal, result)
	}
	for _, d := range r.delays {
		fmt.Fprintf(out, "\n%squeries were sent every %s ms.\n", d.what, measure.Milliseconds(measure.Quantile(d.poll, 0.5)))
	}
}

func (r report) burstTable(out *strings.Builder) {
	fmt.Fprintf(out, `
### All clusters changed at once, ms

| hosted clusters | changed in | from the last reply to the last right answer | target | | queries during the changes, p50 | p99 | max |
|--:|--:|--:|---|---|--:|--:|--:|
`)
	for _, b := range r.bursts {
		goal, result := "", ""
		if b.clusters == targetClusters {
			goal, result = "<= "+measure.Milliseconds(targetBurst), measure.Verdict(b.last <= targetBurst)
		}
		fmt.Fprintf(out, "| %d | %s | %s | %s | %s |", b.clusters, measure.Milliseconds(b.changing), measure.Milliseconds(b.last), goal, result)
		for _, q := range []float64{0.5, 0.99, 1} {
			fmt.Fprintf(out, " %s |", measure.Milliseconds(measure.Quantile(b.queries, q)))
		}
		out.WriteString("\n")
	}
}
