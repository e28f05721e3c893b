package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// TestBench runs the whole benchmark at a tiny size. It checks all answers and the rows of the tables; the numbers are
// meaningless.
func TestBench(t *testing.T) {
	lab.NeedLong(t)
	opts := options{rounds: 2, slice: 50 * time.Millisecond, sizes: []int{1, 3}, direct: 5, vms: 7, changes: 5}
	var out strings.Builder
	if err := run(t.Context(), opts, &out); err != nil {
		t.Fatal(err)
	}
	rows := measure.Rows(out.String())
	for _, want := range []string{
		"1 | pod | noop", "3 | pod | noop", "3 | vlan | noop", "3 | pod | hcpviews with 1",
		"3 | pod | hosts", "3 | pod | file", "3 | pod | template", "3 | pod | kubernetes", "3 | pod | k8s_external",
		"5 | pod | noop", "5 | pod | hcpviews with 1",
		"1 | vlan, names of 7 VMs | noop", "1 | 5 | names of 7 VMs, a VM's Lease: API server's reply",
		"1 | 5 | names of 7 VMs, a record: API server's reply",
		"3 | 5 | watch event", "3 | 5 | API server's reply",
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %q in\n%s", want, out.String())
		}
	}
}

func TestFlags(t *testing.T) {
	for _, tc := range []struct {
		args string
		want options
		err  string
	}{
		{args: "", want: full},
		{args: "-quick", want: quick},
		{args: "--quick -rounds 7", want: with(quick, func(o *options) { o.rounds = 7 })},
		{args: "-sizes 2,20 -direct 0", want: with(full, func(o *options) { o.sizes, o.direct = []int{2, 20}, 0 })},
		{args: "-part proxy -routes 5,10 -starts 1", want: with(full, func(o *options) { o.part, o.routes, o.starts = partProxy, []int{5, 10}, 1 })},
		{args: "-part dhcp -tries 2 -load 1s", want: with(full, func(o *options) { o.part, o.tries, o.load = partDHCP, 2, time.Second })},
		{args: "-part ntp", err: `want one of dns, proxy, dhcp`},
		{args: "-machines 0", err: "must be positive"},
		{args: "-renewing 99999", err: "at most 65536"},
		{args: "-routes 99999", err: "at most 25000"},
		{args: "-sizes 20,2", err: "ascending"},
		{args: "-sizes many", err: `"many" is not a positive number`},
		{args: "-rounds 0", err: "must be positive"},
		{args: "-direct 99999", err: "at most 16384"},
		{args: "quick", err: `unknown argument "quick"`},
	} {
		got, err := parseFlags(strings.Fields(tc.args))
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: error %v, want one with %q", tc.args, err, tc.err)
			}
		case err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want):
			t.Errorf("%q: %v, %v; want %v", tc.args, got, err, tc.want)
		}
	}
}

func with(o options, change func(*options)) options {
	change(&o)
	return o
}

func TestReportShowsMissedTargets(t *testing.T) {
	compared := func(ratio float64, goal target) report {
		return report{comparisons: []comparison{{clusters: 1000, other: "other", ratio: measure.Estimate{Median: ratio}, target: goal}}}
	}
	for _, tc := range []struct {
		name   string
		report report
		missed bool
	}{
		{"noop: at the target", compared(0.97, targetFloor), false},
		{"noop: below the target", compared(0.969, targetFloor), true},
		{"noop: apps below their target", compared(0.949, targetApps), true},
		{"noop: apps at their target", compared(0.95, targetApps), false},
		{"stock plugin: faster", compared(1.01, targetPeer), false},
		{"stock plugin: equal", compared(1, targetPeer), true},
		{"slower with more clusters", compared(0.94, targetFlat), true},
		{"memory at the target", report{memory: []memory{{clusters: 1000, source: sourceInfra, rest: 10 << 20}}}, false},
		{"memory above the target", report{memory: []memory{{clusters: 1000, source: sourceInfra, rest: 11 << 20}}}, true},
		{"memory after queries above the target", report{memory: []memory{{clusters: 1000, source: sourceInfra, rest: 1 << 20, used: 11 << 20}}}, true},
		{"no target for that size", report{memory: []memory{{clusters: 100, source: sourceInfra, rest: 11 << 20}}}, false},
		{"delay at the target", report{delays: []delays{delaysOf(1000, 400*time.Microsecond)}}, false},
		{"delay above the target", report{delays: []delays{delaysOf(1000, 401*time.Microsecond)}}, true},
		{"burst at the target", report{bursts: []burst{{clusters: 1000, last: 100 * time.Millisecond, queries: []time.Duration{1}}}}, false},
		{"burst above the target", report{bursts: []burst{{clusters: 1000, last: 101 * time.Millisecond, queries: []time.Duration{1}}}}, true},
	} {
		text := tc.report.markdown()
		if missed := strings.Contains(text, "missed"); missed != tc.missed {
			t.Errorf("%s: missed is %t in\n%s", tc.name, missed, text)
		}
	}
}

func delaysOf(clusters int, d time.Duration) delays {
	one := []time.Duration{d}
	return delays{clusters: clusters, event: one, reply: one, poll: one}
}
