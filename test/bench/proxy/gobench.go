package proxy

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// cost is a line of a Go benchmark: what one change costs within xdsd.
type cost struct {
	name   string // BenchmarkPush/OneEndpoint/clusters=1000
	took   time.Duration
	bytes  int // allocated
	allocs int
	wire   int // bytes of the responses; 0 where it has none
}

// goBenchmarks runs those of translating, and of serving what changed to a client.
func goBenchmarks(ctx context.Context, opts Options) ([]cost, error) {
	opts.Progress("running Go benchmarks: from the model to an Envoy's hands")
	root, err := lab.Root()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkPush$", "-benchtime", opts.GoBench, "./xdsd/internal/serve")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return parseCosts(string(out))
}

// parseCosts reads what go test -bench prints.
func parseCosts(text string) ([]cost, error) {
	var list []cost
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		c := cost{name: fields[0]}
		if i := strings.LastIndexByte(c.name, '-'); i > 0 { // how many CPUs there are
			c.name = c.name[:i]
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("reading %q of a benchmark: %w", lines.Text(), err)
			}
			switch fields[i+1] {
			case "ns/op":
				c.took = time.Duration(value)
			case "B/op":
				c.bytes = int(value)
			case "allocs/op":
				c.allocs = int(value)
			case "wire-B/op":
				c.wire = int(value)
			}
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no benchmark in %q", text)
	}
	return list, nil
}
