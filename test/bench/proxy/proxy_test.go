package proxy

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

var network = lab.Network{Ranges: Ranges, Sources: []string{"api", "internal", "xdsd"}, Prepare: Prepare}

func TestMain(m *testing.M) {
	if code := network.Main(m); code != 0 {
		os.Exit(code)
	}
}

// TestBench runs the whole benchmark at a tiny size. It checks all connections and the rows of the tables; the numbers
// are meaningless.
func TestBench(t *testing.T) {
	lab.NeedLong(t)
	network.Need(t)
	opts := Options{Sizes: []int{3, 6}, Changes: 3, Starts: 2, Rounds: 2, Slice: 50 * time.Millisecond, Settle: 100 * time.Millisecond, Progress: t.Logf}
	var out strings.Builder
	if err := Run(t.Context(), opts, &out); err != nil {
		t.Fatal(err)
	}
	rows := measure.Rows(out.String())
	for _, want := range []string{
		"3 | a Service's endpoint moves | 3", "3 | a host is added | 3", "6 | a Service's endpoint moves | 3", "6 | a host is added | 3",
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %q in\n%s", want, out.String())
		}
	}
	for _, want := range []string{"| 6 | 2 |", "| 3 | 32 | HAProxy |", "| 3 | 1 | HAProxy |", "| 3 | 32 | minimal Envoy |"} {
		if !strings.Contains(out.String(), "\n"+want) {
			t.Errorf("no row with the prefix %q in\n%s", want, out.String())
		}
	}
}

func TestReportShowsMissedTargets(t *testing.T) {
	delay := func(routes int, kind kind, d time.Duration) report {
		return report{delays: []delays{{routes: routes, kind: kind, sent: []time.Duration{d}, reply: []time.Duration{d}}}}
	}
	start := func(routes int, d time.Duration) report {
		return report{starts: []starts{{routes: routes, took: []time.Duration{d}}}}
	}
	for _, tc := range []struct {
		name   string
		report report
		missed bool
	}{
		{"endpoint: delay below the target", delay(1000, endpointMoved, 49*time.Millisecond), false},
		{"endpoint: delay at the target", delay(1000, endpointMoved, 50*time.Millisecond), true},
		{"host: delay below the target", delay(1000, hostAdded, 99*time.Millisecond), false},
		{"host: delay at the target", delay(1000, hostAdded, 100*time.Millisecond), true},
		{"host: no target for that size", delay(5000, hostAdded, time.Minute), false},
		{"idle at the target", report{idle: []idle{{1000, 0.001, 0.01}}}, false},
		{"idle Envoy above the target", report{idle: []idle{{1000, 0.001, 0.011}}}, true},
		{"idle xdsd above the target", report{idle: []idle{{1000, 0.0011, 0.01}}}, true},
		{"minimal Envoy at the target", report{comparisons: []comparison{{contender: minimalEnvoy, clients: 32, rateRatio: measure.Estimate{Median: 0.95}}}}, false},
		{"minimal Envoy below the target", report{comparisons: []comparison{{contender: minimalEnvoy, clients: 32, rateRatio: measure.Estimate{Median: 0.94}}}}, true},
		{"start below the target", start(5000, 2499*time.Millisecond), false},
		{"start at the target", start(5000, 2500*time.Millisecond), true},
		{"start: no target for that size", start(1000, time.Minute), false},
		{"time and bytes below the target", report{costs: []cost{{name: "BenchmarkPush/OneEndpoint/clusters=1000", took: 1499 * time.Microsecond, wire: 999}}}, false},
		{"time at the target", report{costs: []cost{{name: "BenchmarkPush/OneEndpoint/clusters=1000", took: 1500 * time.Microsecond, wire: 1}}}, true},
		{"bytes at the target", report{costs: []cost{{name: "BenchmarkPush/OneEndpoint/clusters=1000", wire: 1000}}}, true},
	} {
		text := tc.report.markdown()
		if missed := strings.Contains(text, "missed"); missed != tc.missed {
			t.Errorf("%s: missed is %t in\n%s", tc.name, missed, text)
		}
	}
}

func TestParseCosts(t *testing.T) {
	got, err := parseCosts(`goos: linux
BenchmarkPush/OneEndpoint/clusters=10-2   	     100	     12345.6 ns/op	       321.0 wire-B/op	    4567 B/op	      89 allocs/op
PASS
`)
	want := []cost{{name: "BenchmarkPush/OneEndpoint/clusters=10", took: 12345, bytes: 4567, allocs: 89, wire: 321}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := parseCosts("PASS"); err == nil {
		t.Error("no error for output without a benchmark")
	}
}
