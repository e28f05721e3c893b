package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
)

// What is under way at once: enough that the server is always busy, little enough
// that a socket's buffer holds it.
const (
	outstanding = 100
	sockets     = 8
)

// load is a stream of queries.
type load struct {
	questions []question
	file      string // the same, as dnsperf reads them
	source    string // the address that they come from
}

// newLoad writes the questions down for dnsperf.
func (b *bench) newLoad(name, source string, questions []question) (load, error) {
	var text strings.Builder
	for _, q := range questions {
		text.WriteString(q.name)
		text.WriteString(" A\n")
	}
	file := filepath.Join(b.Dir, name+".queries")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return load{}, fmt.Errorf("writing queries: %w", err)
	}
	return load{questions: questions, file: file, source: source}, nil
}

// sample is how a server did in one slice of time.
type sample struct {
	qps            float64
	answered, lost int
	cpu            time.Duration // of the server, for one query
	others         float64       // what else ran on the machine, in CPUs
}

// drive has dnsperf ask the server for the given time, as fast as it answers.
func (b *bench) drive(ctx context.Context, s *server, l load, slice time.Duration) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, slice+30*time.Second)
	defer cancel()
	cmd := measure.Pinned(ctx, b.loadCPU, "dnsperf", "-s", loopback, "-p", strconv.Itoa(s.port), "-a", l.source, "-d", l.file,
		"-l", strconv.FormatFloat(slice.Seconds(), 'f', 3, 64), "-c", strconv.Itoa(sockets), "-q", strconv.Itoa(outstanding),
		"-T", "1", "-t", "2")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	before, err := readClocks(s)
	if err != nil {
		return sample{}, err
	}
	if err := cmd.Run(); err != nil {
		return sample{}, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	after, err := readClocks(s)
	if err != nil {
		return sample{}, err
	}
	r, err := parseResult(stdout.String())
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return sample{}, fmt.Errorf("querying %s: %w", s.name, err)
	}
	served := after.server - before.server
	others := after.machine - before.machine - served - cmd.ProcessState.UserTime() - cmd.ProcessState.SystemTime()
	return sample{
		qps: r.qps, answered: r.completed, lost: r.lost,
		cpu:    served / time.Duration(max(1, r.completed)),
		others: max(0, others.Seconds()/after.at.Sub(before.at).Seconds()),
	}, nil
}

// clocks are what CPUs have done up to a moment.
type clocks struct {
	at              time.Time
	machine, server time.Duration
}

func readClocks(s *server) (clocks, error) {
	machine, err := measure.MachineTime()
	if err != nil {
		return clocks{}, err
	}
	served, err := measure.ProcessTime(s.PID())
	return clocks{at: time.Now(), machine: machine, server: served}, err
}

// result is what dnsperf says of a run.
type result struct {
	completed, lost, right int // right: with response code NOERROR
	qps                    float64
}

// check fails for a run that measured something else than right answers.
func (r result) check() error {
	if wrong := r.completed - r.right; wrong != 0 {
		return fmt.Errorf("%d of %d answers were not NOERROR", wrong, r.completed)
	}
	return nil
}

var resultLines = map[string]*regexp.Regexp{
	"completed": regexp.MustCompile(`(?m)^\s*Queries completed:\s+(\d+)`),
	"lost":      regexp.MustCompile(`(?m)^\s*Queries lost:\s+(\d+)`),
	"qps":       regexp.MustCompile(`(?m)^\s*Queries per second:\s+([\d.]+)`),
	"right":     regexp.MustCompile(`(?m)^\s*Response codes:.*\bNOERROR (\d+)`),
}

// parseResult reads dnsperf's statistics. Without any answer there is no line of
// response codes.
func parseResult(text string) (result, error) {
	number := map[string]float64{}
	for name, line := range resultLines {
		found := line.FindStringSubmatch(text)
		if found == nil {
			if name == "right" {
				continue
			}
			return result{}, fmt.Errorf("dnsperf's output lacks a line %q:\n%s", name, text)
		}
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return result{}, fmt.Errorf("dnsperf's %s: %w", name, err)
		}
		number[name] = n
	}
	return result{
		completed: int(number["completed"]), lost: int(number["lost"]), right: int(number["right"]), qps: number["qps"],
	}, nil
}
