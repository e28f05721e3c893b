package dhcp

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/densityops/oooi/test/bench/measure"
)

// A table has the limits of all servers with one kind of load.
type table struct {
	kind   kind
	limits []limit
}

// A report has all results.
type report struct {
	Options
	disk   disk
	tables []table
}

// markdown returns the tables.
func (r report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n%d CPUs, %s/%s, %s. The stores are on %s, on which an fsync takes %.2f ms", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		runtime.Version(), r.disk.system, r.disk.sync.Seconds()*1e3)
	if r.disk.memory() {
		out.WriteString(": **no disk, so results of servers that write files are meaningless**")
	}
	fmt.Fprintf(&out, ".\nAt most %d tries of %s per server and kind of load.\n", r.Rounds, r.Load)
	for _, t := range r.tables {
		t.write(&out)
	}
	return out.String()
}

func (t table) write(out *strings.Builder) {
	title := "New clients per second: DISCOVER, OFFER, REQUEST, ACK"
	if t.kind == renewals {
		title = "Renewals per second: REQUEST, ACK"
	}
	fmt.Fprintf(out, `
### %s

| server | store | lossless | lossy | loss | response time | CPU per exchange | other load | tries | target | |
|---|---|--:|--:|--:|--:|--:|--:|--:|---|---|
`, title)
	for _, l := range t.limits {
		s := l.search
		if s.best.offered == 0 {
			fmt.Fprintf(out, "| %s | %s | not found | %.0f | %.2f %% | | | %.0f %% | %d | %s |\n", l.server.name, l.server.stack, s.high, 100*s.worst.lost(), 100*s.worst.otherLoad, s.attempted, t.goal(l))
			continue
		}
		high, lost := "not found", ""
		if s.high > 0 {
			high, lost = fmt.Sprintf("%.0f", s.high), fmt.Sprintf("%.2f %%", 100*s.worst.lost())
		}
		fmt.Fprintf(out, "| %s | %s | %.0f | %s | %s | %.2f ms | %s | %.0f %% | %d | %s |\n", l.server.name, l.server.stack, s.best.rate, high, lost,
			s.best.delay.Seconds()*1e3, measure.Microseconds(s.best.cpu), 100*s.best.otherLoad, s.attempted, t.goal(l))
	}
}

// goal returns the last two cells of a row: the target, and whether it is met.
func (t table) goal(l limit) string {
	g, ok := l.server.goal[t.kind]
	if !ok {
		return "|"
	}
	rate := l.search.best.rate
	met, known := rate >= g.rate, true
	var targets []string
	if g.rate > 0 {
		targets = append(targets, fmt.Sprintf(">= %.0f", g.rate))
	}
	if other := slices.IndexFunc(t.limits, func(other limit) bool { return other.server.name == g.beat }); other >= 0 {
		compared := t.limits[other].search
		times := ""
		if g.times != 1 {
			times = fmt.Sprintf("%.2f times ", g.times)
		}
		targets = append(targets, fmt.Sprintf("> %s%s (ratio %.2f)", times, g.beat, rate/compared.best.rate))
		met, known = met && rate > g.times*compared.best.rate, !compared.disturbed()
	}
	result := measure.Verdict(met)
	if !known || !met && l.search.disturbed() {
		result = unknown
	}
	return strings.Join(targets, ", ") + " | " + result
}

// unknown is the verdict if losses may have been caused by other load.
const unknown = "unknown: other load"
