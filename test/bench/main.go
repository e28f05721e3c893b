// Command bench measures our daemons on real processes against the targets of
// docs/reference/measurements.md.
//
// Of hcpviews it measures how many queries a second it answers beside a plugin that
// does nothing and the stock plugins that answer the same kind of question, how
// much memory it takes, and how soon an answer follows a change. What it measures of
// xdsd is in package proxy, what of coredhcp in package dhcp.
//
// Every server's answers are checked before it is measured; a wrong one fails the
// benchmark. Progress goes to standard error, the tables to standard output.
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

// options say how much is measured.
type options struct {
	rounds  int           // of a comparison; each runs either side once
	slice   time.Duration // for how long a side runs in a round
	sizes   []int         // hosted clusters in the API server, ascending
	direct  int           // hosted clusters in a folder of manifests; 0 for none
	changes int           // followed from the API server into an answer
	settle  time.Duration // between a server's last work and the reading of its memory
	part    string        // one of parts; empty for all
	routes  []int         // of a proxy, ascending
	starts  int           // of Envoy, with the most routes
	loops   string        // -benchtime of xdsd's Go benchmarks; empty to leave them out

	tries    int           // of a DHCP server, at most, to find its limit with either load
	load     time.Duration // of a try
	machines int           // virtual machines in the API server
	renewing int           // clients that renew
}

// The parts.
const partDNS, partProxy, partDHCP = "dns", "proxy", "dhcp"

var parts = []string{partDNS, partProxy, partDHCP}

// The whole, and a quick look.
var (
	full = options{
		rounds: 60, slice: 200 * time.Millisecond, sizes: []int{1, 100, 1000}, direct: 10000, changes: 300, settle: 5 * time.Second,
		routes: []int{1000, 5000}, starts: 9, loops: "1s",
		tries: 9, load: 3 * time.Second, machines: 10000, renewing: 2000,
	}
	quick = options{
		rounds: 12, slice: 100 * time.Millisecond, sizes: []int{1, 100}, direct: 1000, changes: 60, settle: time.Second,
		routes: []int{100, 1000}, starts: 3, loops: "100ms",
		tries: 3, load: time.Second, machines: 2000, renewing: 500,
	}
)

// deadline bounds the whole benchmark.
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

// runParts measures what is asked for.
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

// parseFlags reads the command line. -quick gives other defaults; what is given
// beside it counts.
func parseFlags(args []string) (options, error) {
	opts := full
	if slices.ContainsFunc(args, func(arg string) bool { return strings.TrimLeft(arg, "-") == "quick" }) {
		opts = quick
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Bool("quick", false, "a coarse look in a few minutes")
	flags.StringVar(&opts.part, "part", opts.part, strings.Join(parts, ", ")+"; all without it")
	flags.IntVar(&opts.rounds, "rounds", opts.rounds, "rounds of each comparison")
	flags.DurationVar(&opts.slice, "slice", opts.slice, "for how long either side runs in a round")
	numbers := func(name, what string, to *[]int) {
		flags.Func(name, what+", ascending (default "+list(*to)+")", func(text string) error {
			var err error
			*to, err = parseSizes(text)
			return err
		})
	}
	numbers("sizes", "numbers of hosted clusters in the API server", &opts.sizes)
	numbers("routes", "numbers of a proxy's routes", &opts.routes)
	flags.IntVar(&opts.direct, "direct", opts.direct, "hosted clusters straight into the model, from a folder; 0 for none")
	flags.IntVar(&opts.changes, "changes", opts.changes, "changes followed into an answer")
	flags.IntVar(&opts.starts, "starts", opts.starts, "starts of Envoy with all routes")
	flags.StringVar(&opts.loops, "benchtime", opts.loops, "time of each Go benchmark of xdsd; empty for none")
	flags.IntVar(&opts.tries, "tries", opts.tries, "tries, at most, to find a DHCP server's limit with either load")
	flags.DurationVar(&opts.load, "load", opts.load, "of a try: for how long DHCP clients ask")
	flags.IntVar(&opts.machines, "machines", opts.machines, "virtual machines in the API server, of DHCP")
	flags.IntVar(&opts.renewing, "renewing", opts.renewing, "DHCP clients that renew")
	flags.DurationVar(&opts.settle, "settle", opts.settle, "rest of a server before its memory is read")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case opts.part != "" && !slices.Contains(parts, opts.part):
		return options{}, fmt.Errorf("-part %q: want one of %s", opts.part, strings.Join(parts, ", "))
	case opts.rounds < 1 || opts.changes < 1 || opts.starts < 1 || opts.slice <= 0:
		return options{}, errors.New("-rounds, -changes, -starts and -slice have to be positive")
	case opts.tries < 1 || opts.load <= 0 || opts.machines < 1 || opts.renewing < 1:
		return options{}, errors.New("-tries, -load, -machines and -renewing have to be positive")
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
			return nil, fmt.Errorf("%q is not a number of them", word)
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

// progress tells what is going on, on standard error.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
