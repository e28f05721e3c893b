package cmd

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/drift"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

const (
	// maxDrifts is how many sites doctor compares with what setup would apply. For more, the requests would take long.
	maxDrifts = 10
	// probesAtOnce limits how many sites are probed at a time.
	probesAtOnce = 4
)

// addDrift adds to the facts how the objects of each site differ from the rendered ones, unless there are many sites.
func (to *connection) addDrift(ctx context.Context, facts *site.Facts, sites []*site.Site) error {
	if len(sites) > maxDrifts {
		return nil
	}
	var lock sync.Mutex
	var group sync.WaitGroup
	reports := map[string]drift.Report{}
	for _, s := range sites {
		group.Go(func() {
			report := drift.ReportOf(drift.Read(ctx, to.client, s))
			lock.Lock()
			defer lock.Unlock()
			reports[s.Key()] = report
		})
	}
	group.Wait()
	data, err := drift.Encode(reports)
	if err == nil {
		facts.Added[drift.File] = data
	}
	return err //nolint:wrapcheck // error of an internal package
}

// addProbes runs the quick scenarios of 'kubectl oooi test' at each site, and adds the reports to the facts.
func (to *connection) addProbes(ctx context.Context, f *doctorFlags, facts *site.Facts, sites []*site.Site) error {
	prober := &verify.Prober{Client: to.client, Config: to.config, AddressFlag: "--probe-address"}
	prober.Address, _ = netip.ParseAddr(f.probeAddress) // validated by check; the zero Addr if the flag is not set
	var lock sync.Mutex
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(probesAtOnce)
	for _, s := range sites {
		if s.Standalone != nil {
			continue // the scenarios are about an Infra
		}
		group.Go(func() error {
			runner := &verify.Runner{Prober: prober, Facts: facts, Infra: s.Key(), Scenarios: verify.Quick(), Version: release.Version(), Progress: func(string) {}}
			report, err := runner.Run(each)
			if report != nil {
				lock.Lock()
				defer lock.Unlock()
				if saved := report.Save(facts); saved != nil {
					return saved //nolint:wrapcheck // error of an internal package
				}
			}
			if err != nil {
				return fmt.Errorf("probing %s: %w", s.Key(), err)
			}
			return nil
		})
	}
	return group.Wait() //nolint:wrapcheck // of the functions above
}

// added returns what was added to the facts of a site.
func added(facts *site.Facts, s *site.Site) (doctor.Added, error) {
	var a doctor.Added
	if data, ok := facts.Added[drift.File]; ok {
		reports, err := drift.Decode(data)
		if err != nil {
			return a, err //nolint:wrapcheck // error of an internal package
		}
		if r, ok := reports[s.Key()]; ok {
			a.Drift, a.Undrifted = doctor.DriftFindings(s, &r)
		}
	}
	report, err := verify.Saved(facts, s.Key())
	if err != nil || report == nil {
		return a, err //nolint:wrapcheck // error of an internal package
	}
	a.Probe = []doctor.Finding{}
	for i := range report.Results {
		if f := report.Results[i].Failure(); f != nil {
			a.Probe = append(a.Probe, doctor.ProbeFinding(s, report.Results[i].Name, f.Message, f.Remedy, f.Evidence))
		}
	}
	return a, nil
}
