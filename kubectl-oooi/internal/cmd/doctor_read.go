package cmd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/drift"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

const (
	// diagnoseInterval is the pause between two rounds of --wait.
	diagnoseInterval = 2 * time.Second
	// maxDrifts is the number of sites up to which doctor compares objects with the rendered ones. More would take long.
	maxDrifts = 10
	// maxConcurrentProbes limits the number of sites that are probed concurrently.
	maxConcurrentProbes = 4
)

// A diagnoser reads a cluster or a bundle, and runs the checks.
type diagnoser struct {
	*command

	flags           *doctorFlags
	cluster         *connection // nil if a bundle is checked
	namespace, name string
	// The result of the last round: whether StatefulSets without an Infra exist, the facts, nil if none were read, and a diagnosis of
	// each site.
	orphaned bool
	facts    *site.Facts
	list     []*doctor.Diagnosis
}

// diagnose repeats rounds until the exit status is 0 or the time of --wait is over. If interrupted, it returns an error, and keeps the
// last round's result.
func (d *diagnoser) diagnose(ctx context.Context) error {
	if d.cluster != nil {
		err := d.read(ctx, func(ctx context.Context) (err error) {
			d.orphaned, err = d.warnOrphans(ctx, d.cluster.client, d.namespace)
			return err
		})
		if err != nil {
			return err
		}
	}
	d.progress("reading")
	for end := time.Now().Add(d.flags.wait); ; {
		err := d.round(ctx)
		left := time.Until(end)
		if err != nil || d.exitStatus() == nil || left <= 0 {
			return err
		}
		d.progress("waiting for " + firstCode(d.list))
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the checks to pass: %w", context.Cause(ctx))
		case <-time.After(min(left, diagnoseInterval)):
		}
	}
}

// read runs a function that reads the cluster, with --timeout.
func (d *diagnoser) read(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.flags.timeout)
	defer cancel()
	err := d.cluster.ping(ctx) // discovery ignores ctx
	if err == nil {
		err = do(ctx)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the API server at %s did not respond within --timeout %s: %w; 'kubectl get --raw /readyz?verbose' shows whether etcd is ready",
			d.cluster.config.Host, d.flags.timeout, err)
	}
	return err
}

// round reads the cluster or the bundle once, and runs the selected checks on each site. If interrupted while probing, it returns an
// error, and also sets the result.
func (d *diagnoser) round(ctx context.Context) error {
	var facts *site.Facts
	var sites []*site.Site
	var err error
	if d.cluster == nil {
		facts, sites, err = d.load()
	} else {
		err = d.read(ctx, func(ctx context.Context) (err error) { facts, sites, err = d.collect(ctx); return err })
	}
	if err != nil {
		return err
	}
	var unprobed error
	if d.flags.probe {
		unprobed = d.addProbes(ctx, facts, sites)
	}
	d.facts, d.list = facts, nil
	for _, s := range sites {
		a, err := added(facts, s)
		if err != nil {
			return err
		}
		d.list = append(d.list, doctor.Diagnose(s, a, d.flags.contains))
	}
	return unprobed
}

// load reads the bundle of --from.
func (d *diagnoser) load() (*site.Facts, []*site.Site, error) {
	facts, err := site.Load(d.flags.from, d.warning)
	if err != nil {
		return nil, nil, err
	}
	names := facts.Names(d.namespace, d.name)
	if len(names) == 0 && d.name != "" {
		const text = "Infra %s/%s not found in %s; select the namespace with -n, or omit the name and use -A"
		return nil, nil, fmt.Errorf(text, d.namespace, d.name, d.flags.from) //nolint:staticcheck // a kind begins with a capital
	}
	return facts, sitesOf(facts, names), nil
}

// collect reads the cluster and, unless there are many sites, the differences of objects from the rendered ones.
func (d *diagnoser) collect(ctx context.Context) (*site.Facts, []*site.Site, error) {
	reads := doctor.Reads()
	if d.flags.probe {
		reads = append(reads, verify.Reads()...)
	}
	collector := &site.Collector{Client: d.cluster.client, Config: d.cluster.config, Reads: reads, Now: time.Now().UTC()}
	facts, names, err := collector.Collect(ctx, d.namespace, d.name)
	if err != nil {
		return nil, nil, err
	}
	sites := sitesOf(facts, names)
	if len(sites) > maxDrifts {
		return facts, sites, nil
	}
	var lock sync.Mutex
	var group sync.WaitGroup
	reports := map[string]drift.Report{}
	for _, s := range sites {
		group.Go(func() {
			report := drift.ReportOf(drift.Read(ctx, d.cluster.client, s))
			lock.Lock()
			defer lock.Unlock()
			reports[s.Key()] = report
		})
	}
	group.Wait()
	facts.Added[drift.File], err = drift.Encode(reports)
	return facts, sites, err
}

// sitesOf returns the sites with these names, "namespace/name", that can be decoded.
func sitesOf(facts *site.Facts, names []string) []*site.Site {
	var sites []*site.Site
	for _, name := range names {
		if s := site.New(facts, name, nil); s != nil {
			sites = append(sites, s)
		}
	}
	return sites
}

// addProbes runs the quick scenarios of 'kubectl oooi test' at each site, and adds the reports to the facts.
func (d *diagnoser) addProbes(ctx context.Context, facts *site.Facts, sites []*site.Site) error {
	d.progress("probing")
	var lock sync.Mutex
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrentProbes)
	for _, s := range sites {
		if s.Standalone != nil {
			continue // the scenarios require an Infra
		}
		group.Go(func() error {
			runner := &verify.Runner{
				Client: d.cluster.client, Config: d.cluster.config, AddressFlag: "--probe-address", Address: d.flags.probeAddress, Scenarios: verify.Quick(),
				Facts: facts, Infra: s.Key(), Version: release.Version(), Progress: func(string) {},
			}
			report, err := runner.Run(each)
			lock.Lock()
			defer lock.Unlock()
			if report != nil {
				err = errors.Join(err, report.Save(facts))
			}
			if err != nil {
				return fmt.Errorf("probing %s: %w", s.Key(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// added returns the data that was added to a site's facts.
func added(facts *site.Facts, s *site.Site) (doctor.Added, error) {
	var a doctor.Added
	if data, ok := facts.Added[drift.File]; ok {
		reports, err := drift.Decode(data)
		if err != nil {
			return a, err
		}
		if r, ok := reports[s.Key()]; ok {
			a.Drift, a.Undrifted = doctor.DriftFindings(s, &r)
		}
	}
	report, err := verify.Saved(facts, s.Key())
	if err != nil || report == nil {
		return a, err
	}
	a.Probe = []doctor.Finding{}
	for i := range report.Results {
		if f := report.Results[i].Failure(); f != nil {
			a.Probe = append(a.Probe, doctor.ProbeFinding(s, report.Results[i].Name, f.Message, f.Remedy, f.Evidence))
		}
	}
	return a, nil
}

// firstCode returns the code of the first check that failed or could not be performed; empty if there is none.
func firstCode(list []*doctor.Diagnosis) string {
	for _, d := range list {
		if r := d.Root(); r != nil {
			return r.Code
		}
		if skipped := d.Inconclusive(); len(skipped) > 0 {
			return skipped[0].Code
		}
	}
	return ""
}
