// Command bench measures oooi's daemons as real processes and compares the results with the targets in
// docs/reference/measurements.md.
//
// For hcpviews it measures queries per second, compared with a plugin that does nothing and with stock plugins that
// answer the same kind of query, memory, and the delay from a change to the first right answer. Package proxy measures
// xdsd, package dhcp coredhcp.
//
// It checks the answers of each server before it measures the server, and fails if one is wrong. It prints progress to
// standard error and the tables to standard output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/densityops/oooi/test/bench/dhcp"
	"github.com/densityops/oooi/test/bench/proxy"
)

// options are the flags.
type options struct {
	rounds  int           // rounds of each comparison; each measures both sides for one slice
	slice   time.Duration // duration of a slice
	sizes   []int         // numbers of hosted clusters in the API server, ascending
	direct  int           // number of hosted clusters in a folder of manifests; 0 for none
	vms     int           // number of VMs whose names one Infra publishes
	changes int           // number of changes
	settle  time.Duration // time between a server's last work and the measurement of its memory
	part    string        // one of parts; empty for all
	routes  []int         // numbers of a proxy's routes, ascending
	starts  int           // number of starts of Envoy, with the most routes
	loops   string        // -benchtime of xdsd's Go benchmarks; empty to skip them

	tries    int           // maximum number of tries to find a DHCP server's limit, for each kind of load
	load     time.Duration // duration of a try
	machines int           // number of VMs in the API server
	renewing int           // number of clients that renew
}

// The parts of the benchmark.
const partDNS, partProxy, partDHCP = "dns", "proxy", "dhcp"

var parts = []string{partDNS, partProxy, partDHCP}

// Default values of the flags: full without -quick, quick with it.
var (
	full = options{
		rounds: 60, slice: 200 * time.Millisecond, sizes: []int{1, 100, 1000}, direct: 10000, vms: 1000, changes: 300, settle: 5 * time.Second,
		routes: []int{1000, 5000}, starts: 9, loops: "1s",
		tries: 9, load: 3 * time.Second, machines: 10000, renewing: 2000,
	}
	quick = options{
		rounds: 12, slice: 100 * time.Millisecond, sizes: []int{1, 100}, direct: 1000, vms: 1000, changes: 60, settle: time.Second,
		routes: []int{100, 1000}, starts: 3, loops: "100ms",
		tries: 3, load: time.Second, machines: 2000, renewing: 500,
	}
)

// deadline limits the whole benchmark.
const deadline = time.Hour

func main() {
	opts, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, deadline)
	err = runParts(ctx, opts)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// runParts runs the selected parts.
func runParts(ctx context.Context, opts options) error {
	for _, part := range parts {
		var err error
		switch {
		case opts.part != "" && opts.part != part:
		case part == partDNS:
			err = run(ctx, opts, os.Stdout)
		default:
			err = runIsolated(ctx, part, opts, os.Stdout)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parseFlags parses the command line. -quick changes the defaults of the other flags.
func parseFlags(args []string) (options, error) {
	opts := full
	if slices.ContainsFunc(args, func(arg string) bool { return strings.TrimLeft(arg, "-") == "quick" }) {
		opts = quick
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Bool("quick", false, "use smaller defaults, for a run of a few minutes")
	flags.StringVar(&opts.part, "part", opts.part, "part to run: "+strings.Join(parts, ", ")+" (default: all)")
	flags.IntVar(&opts.rounds, "rounds", opts.rounds, "rounds of each comparison")
	flags.DurationVar(&opts.slice, "slice", opts.slice, "time for which either side runs in a round")
	numbers := func(name, usage string, to *[]int) {
		flags.Func(name, usage+", ascending (default "+list(*to)+")", func(text string) error {
			var err error
			*to, err = parseSizes(text)
			return err
		})
	}
	numbers("sizes", "numbers of hosted clusters in the API server", &opts.sizes)
	numbers("routes", "numbers of a proxy's routes", &opts.routes)
	flags.IntVar(&opts.direct, "direct", opts.direct, "number of hosted clusters in a folder of manifests; 0 for none")
	flags.IntVar(&opts.vms, "vms", opts.vms, "number of VMs whose names one Infra publishes")
	flags.IntVar(&opts.changes, "changes", opts.changes, "number of changes whose delay is measured")
	flags.IntVar(&opts.starts, "starts", opts.starts, "number of starts of Envoy with all routes")
	flags.StringVar(&opts.loops, "benchtime", opts.loops, "time of each Go benchmark of xdsd; empty for none")
	flags.IntVar(&opts.tries, "tries", opts.tries, "maximum number of tries to find a DHCP server's limit, for each kind of load")
	flags.DurationVar(&opts.load, "load", opts.load, "duration of the load of DHCP clients in a try")
	flags.IntVar(&opts.machines, "machines", opts.machines, "number of VMs in the API server, for DHCP")
	flags.IntVar(&opts.renewing, "renewing", opts.renewing, "number of DHCP clients that renew")
	flags.DurationVar(&opts.settle, "settle", opts.settle, "idle time of a server before its memory or idle CPU is measured")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case opts.part != "" && !slices.Contains(parts, opts.part):
		return options{}, fmt.Errorf("-part %q: want one of %s", opts.part, strings.Join(parts, ", "))
	case opts.vms < 1 || opts.vms > maxVMs:
		return options{}, fmt.Errorf("-vms must be from 1 to %d", maxVMs)
	case opts.rounds < 1 || opts.changes < 1 || opts.starts < 1 || opts.slice <= 0:
		return options{}, errors.New("-rounds, -changes, -starts and -slice must be positive")
	case opts.tries < 1 || opts.load <= 0 || opts.machines < 1 || opts.renewing < 1:
		return options{}, errors.New("-tries, -load, -machines and -renewing must be positive")
	case max(opts.machines, opts.renewing) > dhcp.MaxClients:
		return options{}, fmt.Errorf("-machines and -renewing: at most %d", dhcp.MaxClients)
	case slices.Max(opts.routes) > proxy.MaxRoutes:
		return options{}, fmt.Errorf("-routes: at most %d", proxy.MaxRoutes)
	case opts.direct < 0 || max(opts.direct, slices.Max(opts.sizes)) > maxClusters:
		return options{}, fmt.Errorf("-sizes and -direct: at most %d hosted clusters", maxClusters)
	}
	return opts, nil
}

func parseSizes(text string) ([]int, error) {
	var sizes []int
	for word := range strings.SplitSeq(text, ",") {
		size, err := strconv.Atoi(word)
		if err != nil || size < 1 {
			return nil, fmt.Errorf("%q is not a positive number", word)
		}
		if len(sizes) > 0 && size <= sizes[len(sizes)-1] {
			return nil, errors.New("want ascending numbers")
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

func list(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// progress prints a message to standard error.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
