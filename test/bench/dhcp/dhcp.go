// Package dhcp measures coredhcp beside other DHCP servers against the targets of
// docs/reference/measurements.md: how many new clients a second each serves without a loss, how many
// renewals, and what CPU time one takes.
//
// It runs in a network namespace; the clients are behind a relay agent in another.
package dhcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// Options say how much is measured.
type Options struct {
	Rounds   int           // in each, every server has one try
	Load     time.Duration // of a try
	Machines int           // virtual machines in the API server
	Renewing int           // clients that renew
	Progress func(format string, args ...any)
}

// Ranges are the networks that Run needs: benchmarks' addresses.
var Ranges = []string{"198.18.0.0/15"}

// The peers, where Debian has them, which is in no user's PATH.
const (
	perfdhcp = "/usr/sbin/perfdhcp"
	kea      = "/usr/sbin/kea-dhcp4"
	dnsmasq  = "/usr/sbin/dnsmasq"
)

// Missing returns an error that names the programs that are not there.
func Missing() error { return measure.Need(perfdhcp, kea, dnsmasq) }

// Prepare builds and fetches what Run takes: there is no way to in a network namespace.
func Prepare(ctx context.Context) error { return measure.Prepare(ctx, "./coredhcpbuild", crds...) }

// bench is one run.
type bench struct {
	Options
	*measure.Stage

	lan    *lan
	report report
	tries  int // so far
}

// Run measures everything and writes the tables to out.
func Run(ctx context.Context, opts Options, out io.Writer) (err error) {
	if err := Missing(); err != nil {
		return err
	}
	b := &bench{Options: opts, report: report{Options: opts}}
	if b.report.disk, err = findDisk(); err != nil {
		return err
	}
	if b.lan, err = newLAN(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.lan.Close()) }()
	if b.Stage, err = measure.NewStage(ctx, b.report.disk.dir, lab.Config{Logf: opts.Progress}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.measure(ctx); err != nil {
		return err
	}
	_, err = io.WriteString(out, b.report.markdown())
	return err
}

// measure searches every server's limit, with each kind of load.
func (b *bench) measure(ctx context.Context) error {
	b.Progress("filling the API server: %d virtual machines", b.Machines)
	if err := fill(ctx, b.Management, b.Machines); err != nil {
		return err
	}
	servers, err := b.servers()
	if err != nil {
		return err
	}
	for _, k := range kinds {
		limits, err := b.limits(ctx, k, servers)
		if err != nil {
			return fmt.Errorf("measuring %s: %w", k, err)
		}
		b.report.tables = append(b.report.tables, table{k, limits})
	}
	return nil
}

// limits tries one server after the other, in each round with other loads, so that what else
// the machine does meets all alike.
func (b *bench) limits(ctx context.Context, k kind, servers []server) ([]limit, error) {
	limits := make([]limit, len(servers))
	for i, s := range servers {
		limits[i] = limit{server: s, search: newSearch(s.guess[k], b.Rounds/4)}
	}
	for round := range b.Rounds {
		for turn := range servers {
			l := &limits[(round+turn)%len(limits)]
			if l.search.done() {
				continue
			}
			rate := l.search.next
			r, err := b.try(ctx, k, l.server, rate)
			if err != nil {
				return nil, fmt.Errorf("%s at %.0f/s: %w", l.server.name, rate, err)
			}
			l.search.take(r)
			b.Progress("%s, %s: %s", k, l.server.name, r)
		}
	}
	return limits, nil
}

// try starts a server with nothing in its store, loads it and ends it.
func (b *bench) try(ctx context.Context, k kind, s server, rate float64) (result, error) {
	const deadline = 2 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	b.tries++
	dir := filepath.Join(b.Dir, fmt.Sprint("try", b.tries))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return result{}, fmt.Errorf("making a server's folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // all goes with b.Dir
	p, err := s.start(ctx, dir)
	if err != nil {
		return result{}, err
	}
	defer p.Stop()
	if err := b.lan.await(ctx, p); err != nil {
		return result{}, err
	}
	o, err := watchOthers()
	if err != nil {
		return result{}, err
	}
	r, err := b.load(ctx, k, s, p, rate)
	if err == nil {
		err = p.Alive()
	}
	if err == nil {
		r.others, err = o.share()
	}
	if err != nil {
		return result{}, p.Blame(err)
	}
	return r, nil
}

// load has clients ask.
func (b *bench) load(ctx context.Context, k kind, s server, p *measure.Process, rate float64) (result, error) {
	if k == renewals {
		return b.renew(ctx, s, p, rate)
	}
	clients := max(100, int(rate*b.Load.Seconds()))
	if s.clients > 0 {
		clients = max(1, min(clients, s.clients-spare(rate)))
	}
	return b.lan.perfdhcp(ctx, p, rate, clients)
}
