package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Diagnosis has the fields of doctor's JSON output that tests read.
type Diagnosis struct{ Results []Result }

// Result is the result of one check.
type Result struct {
	Code, Status, Reason string
	Findings             []Finding
}

// Finding is a fault that a check reports.
type Finding struct {
	Severity, Message, Remedy, ConsequenceOf string
	Evidence                                 []string
	Object                                   struct{ Kind, Namespace, Name string }
}

// Diagnose runs doctor with additional arguments.
func (s *Site) Diagnose(args ...string) *Diagnosis {
	s.Helper()
	output := s.Doctor(s.T, append([]string{"-o", "json"}, args...)...)
	d := &Diagnosis{}
	if err := json.Unmarshal([]byte(output.Stdout), d); err != nil {
		s.Fatalf("doctor: exit code %d, %v: %s%s", output.Code, err, output.Stdout, output.Stderr)
	}
	return d
}

// inOrder returns the results with findings: failures, and then warnings. A panic of a check counts as a failure.
func (d *Diagnosis) inOrder() []*Result {
	var list []*Result
	for _, statuses := range [][]string{{"fail", "error"}, {"warn"}} {
		for i := range d.Results {
			if slices.Contains(statuses, d.Results[i].Status) {
				list = append(list, &d.Results[i])
			}
		}
	}
	return list
}

// shows reports whether a fault is the first that doctor reports, except for findings of faults that were reverted, which may
// last for a while, and for consequences.
func (d *Diagnosis) shows(f *Fault, reverted []string) bool {
	for _, r := range d.inOrder() {
		other := r.Findings == nil
		for _, found := range r.Findings {
			cause := strings.TrimPrefix(found.ConsequenceOf, codePrefix)
			switch {
			case cause != "" && !slices.Contains(reverted, cause) || found.Severity != r.Status:
			case r.is(f) && strings.Contains(fmt.Sprintf("%+v", found), f.Says):
				return true
			default:
				other = other || cause == ""
			}
		}
		if other && !slices.Contains(reverted, strings.TrimPrefix(r.Code, codePrefix)) {
			return false
		}
	}
	return false
}

// codePrefix is the prefix of all codes.
const codePrefix = "OOOI-"

// is reports whether a result has the code and the severity of a fault.
func (r *Result) is(f *Fault) bool {
	return strings.TrimPrefix(r.Code, codePrefix)+" "+r.Status == f.Want
}

// healthy reports whether there are no findings.
func (d *Diagnosis) healthy() bool { return len(d.inOrder()) == 0 }

// String returns what did not pass.
func (d *Diagnosis) String() string {
	var b strings.Builder
	for _, r := range d.Results {
		if r.Status != "pass" {
			fmt.Fprintf(&b, "%s %s %s %+v\n", r.Code, r.Status, r.Reason, r.Findings)
		}
	}
	return b.String()
}

// await runs doctor until a condition holds, and fails the test otherwise.
func (s *Site) await(what string, condition func(*Diagnosis) bool, args ...string) *Diagnosis {
	s.Helper()
	pause := 200 * time.Millisecond // which grows, because daemons report some faults only after a minute
	for end := time.Now().Add(s.Timeout); ; time.Sleep(pause) {
		d := s.Diagnose(args...)
		if condition(d) {
			return d
		}
		pause = min(pause*5/4, time.Second)
		if time.Now().After(end) {
			s.Fatalf("doctor does not report %s after %s:\n%s", what, s.Timeout, d)
		}
	}
}

// Healthy fails the test if doctor has findings or skips a check.
func (s *Site) Healthy(t *testing.T, args ...string) {
	t.Helper()
	s.T = t
	d := s.await("no findings", (*Diagnosis).healthy, args...)
	for _, r := range d.Results {
		if r.Status != "pass" {
			t.Errorf("%s: %s %s", r.Code, r.Status, r.Reason)
		}
	}
}

// Try breaks the site with the faults of a group, expects doctor to report each first when those before it are reverted, and no
// findings in the end.
func (s *Site) Try(t *testing.T, g *Group) {
	s.T = t
	undo := make([][]func(), len(g.Faults))
	defer func() { // of faults after a fatal one
		s.T = t
		for _, list := range undo {
			revert(list)
		}
	}()
	for i := range g.Faults {
		s.undo = nil
		g.Faults[i].Break()
		undo[i] = s.undo
	}
	began := time.Now()
	var reverted []string
	for i := range g.Faults {
		f := &g.Faults[i]
		t.Run(f.Name, func(t *testing.T) {
			s.T = t
			var args []string
			if f.Probe {
				args = append(args, "--probe")
			}
			s.await(f.Want+" that says "+f.Says, func(d *Diagnosis) bool { return d.shows(f, reverted) }, args...)
			t.Logf("found %s after the last change", time.Since(began).Round(100*time.Millisecond))
		})
		code, _, _ := strings.Cut(f.Want, " ")
		reverted = append(reverted, code)
		s.T = t
		s.undo = undo[i] // a function may add others
		undo[i] = nil
		revert(s.undo)
		began = time.Now()
	}
	s.await("no findings", (*Diagnosis).healthy)
	t.Logf("no findings %s after the last change", time.Since(began).Round(100*time.Millisecond))
}
