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

const (
	// outstanding is the number of unanswered queries: enough to keep the server busy, and few enough for a socket's
	// buffer.
	outstanding = 100
	sockets     = 8
)

// A load is the input of dnsperf.
type load struct {
	questions []question
	file      string // dnsperf's query file with the questions
	source    string // source address of the queries
}

// newLoad writes a query file for dnsperf.
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

// A sample is the result of one slice of time with one server.
type sample struct {
	qps            float64
	answered, lost int
	cpu            time.Duration // the server's CPU time per query
	otherLoad      float64       // CPU use of other programs, in CPUs
}

// drive runs dnsperf for the given time, with as many queries as the server answers.
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
		cpu:       served / time.Duration(max(1, r.completed)),
		otherLoad: max(0, others.Seconds()/after.at.Sub(before.at).Seconds()),
	}, nil
}

// clocks are the CPU times of the machine and of a server at one moment.
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

// result has the statistics of a dnsperf run.
type result struct {
	completed, lost, noError int // noError: answers with response code NOERROR
	qps                      float64
}

// check returns an error if any answer was not NOERROR.
func (r result) check() error {
	if failed := r.completed - r.noError; failed != 0 {
		return fmt.Errorf("%d of %d answers were not NOERROR", failed, r.completed)
	}
	return nil
}

var resultLines = map[string]*regexp.Regexp{
	"completed": regexp.MustCompile(`(?m)^\s*Queries completed:\s+(\d+)`),
	"lost":      regexp.MustCompile(`(?m)^\s*Queries lost:\s+(\d+)`),
	"qps":       regexp.MustCompile(`(?m)^\s*Queries per second:\s+([\d.]+)`),
	"NOERROR":   regexp.MustCompile(`(?m)^\s*Response codes:.*\bNOERROR (\d+)`),
}

// parseResult parses dnsperf's statistics. If no query was answered, they have no line with response codes.
func parseResult(text string) (result, error) {
	number := map[string]float64{}
	for name, line := range resultLines {
		found := line.FindStringSubmatch(text)
		if found == nil {
			if name == "NOERROR" {
				continue
			}
			return result{}, fmt.Errorf("dnsperf's output has no line %q:\n%s", name, text)
		}
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return result{}, fmt.Errorf("dnsperf's %s: %w", name, err)
		}
		number[name] = n
	}
	return result{
		completed: int(number["completed"]), lost: int(number["lost"]), noError: int(number["NOERROR"]), qps: number["qps"],
	}, nil
}
