package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

// diagnosed has the facts that were read, and a diagnosis for each site.
type diagnosed struct {
	facts *site.Facts
	list  []*doctor.Diagnosis
}

// diagnoseInterval is the pause between two rounds of --wait.
const diagnoseInterval = 2 * time.Second

// diagnose reads the cluster or the bundle, and runs the checks. It repeats this until the exit status is 0 or --wait is over. It
// shows progress on a terminal. If it is interrupted, it returns an error with the last diagnoses, nil if there are none.
func (c *command) diagnose(ctx context.Context, to *connection, f *doctorFlags, namespace, name string) (*diagnosed, error) {
	p := startProgress(c.ErrOut)
	defer p.stop()
	var last *diagnosed
	for end := time.Now().Add(f.wait); ; {
		l, err := c.diagnoseOnce(ctx, to, f, namespace, name, p)
		if l != nil {
			last = l
		}
		left := time.Until(end)
		if err != nil || f.exitStatus(l.list) == nil || left <= 0 {
			return last, err
		}
		p.set("waiting: " + firstFinding(l.list))
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("waiting for the checks to pass: %w", context.Cause(ctx))
		case <-time.After(min(left, diagnoseInterval)):
		}
	}
}

// diagnoseOnce reads the cluster or the bundle once, and runs the selected checks on each site. If it is interrupted while it
// probes, it returns an error with the diagnoses of what was read.
func (c *command) diagnoseOnce(ctx context.Context, to *connection, f *doctorFlags, namespace, name string, p *progress) (*diagnosed, error) {
	readCtx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	p.set("reading")
	facts, names, err := c.readInTime(readCtx, to, f, namespace, name)
	if err != nil {
		return nil, err
	}
	var sites []*site.Site
	for _, name := range names {
		if s := site.New(facts, name, nil); s != nil {
			sites = append(sites, s)
		}
	}
	var unprobed error
	if to != nil {
		if err := to.addDrift(readCtx, facts, sites); err != nil {
			return nil, err
		}
		if f.probe {
			p.set("probing")
			unprobed = to.addProbes(ctx, f, facts, sites)
		}
	}
	l := &diagnosed{facts: facts}
	for i, s := range sites {
		p.set(fmt.Sprintf("checking %s, %d of %d", s.Key(), i+1, len(sites)))
		a, err := added(facts, s)
		if err != nil {
			return nil, err
		}
		l.list = append(l.list, doctor.Diagnose(s, a, f.selected))
	}
	return l, unprobed
}

// timeoutError is the error of reading a cluster that does not answer within --timeout.
type timeoutError string

func (e timeoutError) Error() string { return string(e) }

// readInTime is readFacts, and returns when ctx ends. Discovery of the API server's kinds does not end with ctx.
func (c *command) readInTime(ctx context.Context, to *connection, f *doctorFlags, namespace, name string) (facts *site.Facts, names []string, err error) {
	done := make(chan func(), 1)
	go func() {
		readFacts, readNames, readErr := c.readFacts(ctx, to, f, namespace, name)
		done <- func() { facts, names, err = readFacts, readNames, readErr }
	}()
	select {
	case take := <-done:
		take()
	case <-ctx.Done():
		select {
		case take := <-done:
			take()
		case <-time.After(abandonAfter):
			err = context.Cause(ctx)
		}
	}
	if err != nil && to != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = timeoutError(fmt.Sprintf("the API server at %s did not answer within --timeout %s: %v; 'kubectl get --raw /readyz?verbose' shows whether its etcd answers", to.config.Host, f.timeout, err))
	}
	return facts, names, err
}

// abandonAfter is how long a request may take to return after its context has ended.
const abandonAfter = 500 * time.Millisecond

// firstFinding returns the root finding of the first diagnosis that has one, as one line; empty if there is none.
func firstFinding(list []*doctor.Diagnosis) string {
	for _, d := range list {
		switch r := d.Root(); {
		case r != nil && len(r.Findings) > 0:
			return fmt.Sprintf("%s %s: %s", r.Code, r.Findings[0].Object, r.Findings[0].Message)
		case r != nil:
			return r.Code + " " + r.Reason
		}
		if skipped := d.Inconclusive(); len(skipped) > 0 {
			return skipped[0].Code + " " + skipped[0].Reason
		}
	}
	return ""
}

// readFacts reads from the cluster, or from the bundle of --from if to is nil. It returns the facts and the sites to check, as
// "namespace/name".
func (c *command) readFacts(ctx context.Context, to *connection, f *doctorFlags, namespace, name string) (*site.Facts, []string, error) {
	if to == nil {
		facts, err := site.Load(f.from, c.warning)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // error of an internal package
		}
		names := facts.Names(namespace, name)
		if len(names) == 0 && name != "" {
			return nil, nil, fmt.Errorf("%s has no Infra %s/%s; select its namespace with -n, or omit the name and use -A", f.from, namespace, name)
		}
		return facts, names, nil
	}
	reads := doctor.Reads()
	if f.probe {
		reads = append(reads, verify.Reads()...)
	}
	collector := &site.Collector{Client: to.client, Config: to.config, Reads: reads, Now: time.Now().UTC()}
	return collector.Collect(ctx, namespace, name) //nolint:wrapcheck // error of an internal package
}
