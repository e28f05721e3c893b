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

// A cost is a result of a Go benchmark: the cost of one change in xdsd.
type cost struct {
	name   string // such as BenchmarkPush/OneEndpoint/clusters=1000
	took   time.Duration
	bytes  int // allocated bytes
	allocs int
	wire   int // bytes of the responses; 0 if it reports none
}

// goBenchmarks runs xdsd's Go benchmarks of pushing a change to a client.
func goBenchmarks(ctx context.Context, opts Options) ([]cost, error) {
	opts.Progress("running Go benchmarks: from a change of the model until a client has received it")
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

// parseCosts parses the output of go test -bench.
func parseCosts(text string) ([]cost, error) {
	var list []cost
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		c := cost{name: fields[0]}
		if i := strings.LastIndexByte(c.name, '-'); i > 0 { // the suffix is GOMAXPROCS
			c.name = c.name[:i]
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("parsing benchmark result %q: %w", lines.Text(), err)
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
		return nil, fmt.Errorf("no benchmark results in %q", text)
	}
	return list, nil
}
