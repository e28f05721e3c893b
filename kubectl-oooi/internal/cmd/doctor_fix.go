package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
)

// fixWait is how long --fix without --wait waits for its changes to take effect: until pods that it deleted are ready.
const fixWait = time.Minute

// fixAndCheck applies the fixes of the findings for which ask returns true. If it changed anything, it checks again until
// only findings remain that it knows and has not fixed, prints the result and returns it. Otherwise it returns the
// earlier result.
func (c *command) fixAndCheck(ctx context.Context, to *connection, f *doctorFlags, checks []doctor.Check, namespace, name string, before *diagnosed, ask func(question string) (bool, error)) (*diagnosed, error) {
	asked, applied := map[string]bool{}, map[string]bool{} // by command: several findings can have one fix
	for _, d := range before.list {
		for _, r := range d.Results {
			for i := range r.Findings {
				fix := r.Findings[i].Fix
				if fix == nil || asked[fix.Command] {
					continue
				}
				asked[fix.Command] = true
				done, err := c.applyFix(ctx, to, f, r.Code, fix, ask)
				if err != nil {
					return nil, err
				}
				if done {
					applied[fix.Command] = true
				}
			}
		}
	}
	switch {
	case len(asked) == 0:
		fmt.Fprintln(c.ErrOut, "doctor has no fix for these findings; see their remedies")
		return before, nil
	case len(applied) == 0:
		fmt.Fprintln(c.ErrOut, "nothing was changed")
		return before, nil
	}
	wait := f.wait
	if wait == 0 {
		wait = fixWait
	}
	known := map[string]bool{} // findings that stay
	eachFinding(before.list, func(key string, finding *doctor.Finding) {
		known[key] = known[key] || finding.Fix == nil || !applied[finding.Fix.Command]
	})
	after, err := c.diagnose(ctx, to, f, checks, namespace, name, wait, func(list []*doctor.Diagnosis) bool {
		done := true
		eachFinding(list, func(key string, _ *doctor.Finding) { done = done && known[key] })
		return done
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(c.Out)
	return after, c.printDiagnoses(ctx, f, after.list, namespace, name)
}

// eachFinding calls take with each finding, and with a key of its check and object.
func eachFinding(list []*doctor.Diagnosis, take func(key string, finding *doctor.Finding)) {
	for _, d := range list {
		for _, r := range d.Results {
			for i := range r.Findings {
				take(fmt.Sprint(d.Metadata, r.Code, r.Findings[i].Object), &r.Findings[i])
			}
		}
	}
}

// applyFix applies a fix if ask returns true, and reports whether it did. A fix that fails is a warning, so that others
// are applied.
func (c *command) applyFix(ctx context.Context, to *connection, f *doctorFlags, code string, fix *doctor.Fix, ask func(question string) (bool, error)) (bool, error) {
	fmt.Fprintf(c.ErrOut, "%s: %s\n  this %s\n", code, fix.Command, fix.Effect)
	yes, err := ask("Apply?")
	if err != nil || !yes {
		return false, err
	}
	err = withTimeout(ctx, f.timeout, func(ctx context.Context) error { return fix.Apply(ctx, to.client) })
	switch {
	case ctx.Err() != nil:
		return false, err
	case err != nil:
		c.warning(err.Error())
		return false, nil
	}
	return true, nil
}
