package proxy

import (
	"fmt"
	"strings"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
)

// Targets.
const (
	targetEndpointCPU   = 1500 * time.Microsecond // of xdsd, at targetRoutes
	targetEndpointWire  = 1000                    // bytes, at targetRoutes
	targetEndpointDelay = 50 * time.Millisecond
	targetHostDelay     = 100 * time.Millisecond
	targetIdleXdsd      = 0.001 // of one CPU, at targetRoutes
	targetIdleEnvoy     = 0.01
	targetRoutes        = 1000
	targetStart         = 2500 * time.Millisecond // at targetStartRoutes
	targetStartRoutes   = 5000
	targetOfMinimal     = 0.95 // rate compared with the minimal Envoy
)

// A report has all results.
type report struct {
	Options
	costs       []cost
	delays      []delays
	idle        []idle
	starts      []starts
	comparisons []comparison
}

// markdown returns the tables.
func (r report) markdown() string {
	var out strings.Builder
	r.costTable(&out)
	r.delayTable(&out)
	r.idleTable(&out)
	r.startTable(&out)
	r.comparisonTable(&out)
	return out.String()
}

func (r report) costTable(out *strings.Builder) {
	if len(r.costs) == 0 {
		return
	}
	out.WriteString(`
### xdsd: from a change of the model until a client has received it, both in one process

| change | clusters | time | allocated | allocations | on the wire, bytes | target | |
|---|--:|--:|--:|--:|--:|---|---|
`)
	for _, c := range r.costs {
		_, change, _ := strings.Cut(c.name, "/")
		change, clusters, _ := strings.Cut(change, "/clusters=")
		goal, result := "", ""
		if change == "OneEndpoint" && clusters == fmt.Sprint(targetRoutes) {
			goal = fmt.Sprintf("< %s ms, < %d bytes", measure.Milliseconds(targetEndpointCPU), targetEndpointWire)
			result = measure.Verdict(c.took < targetEndpointCPU && c.wire < targetEndpointWire)
		}
		fmt.Fprintf(out, "| %s | %s | %s ms | %.2f MB | %d | %d | %s | %s |\n", change, clusters,
			fmt.Sprintf("%.3f", c.took.Seconds()*1e3), float64(c.bytes)/(1<<20), c.allocs, c.wire, goal, result)
	}
}

func (r report) delayTable(out *strings.Builder) {
	out.WriteString(`
### From a change in the API server to the first connection through Envoy that follows it, ms

| routes | change | changes | CPU of xdsd | CPU of Envoy | p50 from the reply | p99 from the reply | max | p50 from the request | p99 from the request | target | |
|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|---|---|
`)
	for _, d := range r.delays {
		goal, result := "", ""
		if limit := d.limit(); d.routes == targetRoutes {
			met := measure.Quantile(d.reply, 0.99) < limit
			goal = "p99 < " + measure.Milliseconds(limit)
			if d.kind == endpointMoved {
				goal += ", CPU of xdsd < " + measure.Milliseconds(targetEndpointCPU)
				met = met && d.cpu < targetEndpointCPU
			}
			result = measure.Verdict(met)
		}
		fmt.Fprintf(out, "| %d | %s | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", d.routes, d.kind, len(d.reply), measure.Milliseconds(d.cpu), measure.Milliseconds(d.envoy),
			measure.Milliseconds(measure.Quantile(d.reply, 0.5)), measure.Milliseconds(measure.Quantile(d.reply, 0.99)), measure.Milliseconds(measure.Quantile(d.reply, 1)),
			measure.Milliseconds(measure.Quantile(d.sent, 0.5)), measure.Milliseconds(measure.Quantile(d.sent, 0.99)), goal, result)
	}
}

func (d delays) limit() time.Duration {
	if d.kind == hostAdded {
		return targetHostDelay
	}
	return targetEndpointDelay
}

func (r report) idleTable(out *strings.Builder) {
	out.WriteString(`
### Idle: share of one CPU

| routes | xdsd | Envoy | target | |
|--:|--:|--:|---|---|
`)
	for _, i := range r.idle {
		goal, result := "", ""
		if i.routes == targetRoutes {
			goal = fmt.Sprintf("<= %.1f %%, <= %.1f %%", 100*targetIdleXdsd, 100*targetIdleEnvoy)
			result = measure.Verdict(i.xdsd <= targetIdleXdsd && i.envoy <= targetIdleEnvoy)
		}
		fmt.Fprintf(out, "| %d | %.2f %% | %.2f %% | %s | %s |\n", i.routes, 100*i.xdsd, 100*i.envoy, goal, result)
	}
}

func (r report) startTable(out *strings.Builder) {
	out.WriteString(`
### From Envoy's start until every route works, ms

| routes | starts | median | longest | target | |
|--:|--:|--:|--:|---|---|
`)
	for _, s := range r.starts {
		goal, result := "", ""
		if s.routes == targetStartRoutes {
			goal, result = "< "+measure.Milliseconds(targetStart), measure.Verdict(measure.Quantile(s.took, 0.5) < targetStart)
		}
		fmt.Fprintf(out, "| %d | %d | %s | %s | %s | %s |\n", s.routes, len(s.took),
			measure.Milliseconds(measure.Quantile(s.took, 0.5)), measure.Milliseconds(measure.Quantile(s.took, 1)), goal, result)
	}
}

func (r report) comparisonTable(out *strings.Builder) {
	fmt.Fprintf(out, `
### Envoy and others: connections by SNI, one thread on one CPU each, %d rounds of %s per side

| routes | clients | compared with | connections/s | its | ratio | target | | CPU per connection | its | ratio | latency | its | ratio |
|--:|--:|---|--:|--:|---|---|---|--:|--:|---|--:|--:|---|
`, r.Rounds, r.Slice)
	for _, c := range r.comparisons {
		goal, result := "", ""
		if c.contender == minimalEnvoy && c.clients > 1 {
			goal, result = fmt.Sprintf(">= %.2f", targetOfMinimal), measure.Verdict(c.rateRatio.Median >= targetOfMinimal)
		}
		fmt.Fprintf(out, "| %d | %d | %s | %.0f | %.0f | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", c.routes, c.clients, c.contender, c.rate[0], c.rate[1], c.rateRatio, goal, result,
			measure.Microseconds(c.cpu[0]), measure.Microseconds(c.cpu[1]), c.cpuRatio,
			measure.Microseconds(c.latency[0]), measure.Microseconds(c.latency[1]), c.latencyRatio)
	}
	if len(r.comparisons) > 0 {
		fmt.Fprintf(out, `
Medians of all rounds. A ratio above 1 is in favour of Envoy as oooi configures it; in parentheses, the interval that contains
the true median with a confidence of %.1f %%.
`, 100*r.comparisons[0].rateRatio.Confidence)
	}
}
