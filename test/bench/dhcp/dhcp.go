// Package dhcp compares coredhcp with other DHCP servers and with the targets in docs/reference/measurements.md: new
// clients and renewals per second without loss, and CPU time for each.
//
// It runs in its own network namespace; the clients are behind a relay agent in another one.
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

// Options configure a run.
type Options struct {
	Rounds   int           // maximum number of rounds, in each of which every server has one try
	Load     time.Duration // duration of the load of a try
	Machines int           // number of VMs in the API server
	Renewing int           // number of clients that renew
	Progress func(format string, args ...any)
}

// Ranges are the networks that Run needs. They are reserved for benchmarks (RFC 2544).
var Ranges = []string{"198.18.0.0/15"}

// Paths of the other programs in Debian, which are not in a user's PATH.
const (
	perfdhcp = "/usr/sbin/perfdhcp"
	kea      = "/usr/sbin/kea-dhcp4"
	dnsmasq  = "/usr/sbin/dnsmasq"
)

// Missing returns an error that names all programs that are not installed.
func Missing() error { return measure.Need(perfdhcp, kea, dnsmasq) }

// Prepare builds and downloads what Run needs, which is not possible in a network namespace.
func Prepare(ctx context.Context) error { return measure.Prepare(ctx, "./coredhcpbuild", crds...) }

// bench is one run.
type bench struct {
	Options
	*measure.Stage

	lan    *lan
	report report
	tries  int // number of tries so far
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

// measure finds the limit of each server with each kind of load.
func (b *bench) measure(ctx context.Context) error {
	b.Progress("filling the API server: %d VMs", b.Machines)
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

// limits finds the limit of each server with one kind of load. The servers take turns, and each round begins with
// another one, so that other load affects all alike.
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
			l.search.add(r)
			b.Progress("%s, %s: %s", k, l.server.name, r)
		}
	}
	return limits, nil
}

// try starts a server with an empty store, loads it at a rate, and stops it.
func (b *bench) try(ctx context.Context, k kind, s server, rate float64) (result, error) {
	const deadline = 2 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	b.tries++
	dir := filepath.Join(b.Dir, fmt.Sprint("try", b.tries))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return result{}, fmt.Errorf("creating a server's folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // otherwise b.Close deletes it
	p, err := s.start(ctx, dir)
	if err != nil {
		return result{}, err
	}
	defer p.Stop()
	if err := b.lan.await(ctx, p); err != nil {
		return result{}, err
	}
	o, err := newOtherLoad()
	if err != nil {
		return result{}, err
	}
	r, err := b.load(ctx, k, s, p, rate)
	if err == nil {
		err = p.Alive()
	}
	if err == nil {
		r.otherLoad, err = o.share()
	}
	if err != nil {
		return result{}, p.WithLog(err)
	}
	return r, nil
}

// load loads a server with one kind of load at a rate per second.
func (b *bench) load(ctx context.Context, k kind, s server, p *measure.Process, rate float64) (result, error) {
	if k == renewals {
		return b.renew(ctx, s, p, rate)
	}
	clients := max(100, int(rate*b.Load.Seconds()))
	if s.clients > 0 {
		clients = max(1, min(clients, s.clients-extraClients(rate)))
	}
	return b.lan.perfdhcp(ctx, p, rate, clients)
}
