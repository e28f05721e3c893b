package faults

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Diagnosis has the fields of doctor's JSON output that tests read.
type Diagnosis struct {
	Results []Result

	text string
	code int
}

// Result is the result of one check.
type Result struct {
	Code, Status, Reason, BlockedBy string
	Inconclusive                    bool
	Findings                        []Finding
}

// Finding is a fault that a check reports.
type Finding struct {
	Severity, Message, Remedy string
	Evidence                  []string
	Object                    struct{ Kind, Namespace, Name string }
}

// Found returns the checks with findings, in the form and order of Fault.Want.
func (d *Diagnosis) Found() []string {
	found := []string{}
	for _, status := range []string{"fail", "error", "warn"} {
		for _, r := range d.Results {
			if r.Status == status {
				found = append(found, strings.TrimPrefix(r.Code, codePrefix)+" "+status)
			}
		}
	}
	return found
}

// codePrefix is the prefix of all codes.
const codePrefix = "OOOI-"

// Diagnose runs doctor with further arguments.
func (s *Site) Diagnose(args ...string) *Diagnosis {
	s.Helper()
	output := s.Doctor(s.T, append([]string{"-o", "json", "--fail-on", "warn"}, args...)...)
	d := &Diagnosis{text: output.Stdout, code: output.Code}
	if err := json.Unmarshal([]byte(output.Stdout), d); err != nil {
		s.Fatalf("doctor: exit code %d, %v: %s%s", output.Code, err, output.Stdout, output.Stderr)
	}
	return d
}

// stableRuns is how many consecutive runs must have the expected findings at a site that changes by itself.
const stableRuns = 2

// await runs doctor until it has the findings of a fault, or the site's timeout is over.
func (s *Site) await(f *Fault, args ...string) *Diagnosis {
	s.Helper()
	d := s.diagnose(f, args...)
	if s.Timeout == 0 {
		return d
	}
	same, required := 0, stableRuns
	if slices.Contains(args, "--probe") { // takes long enough for the site to be stable
		required = 1
	}
	for end := time.Now().Add(s.Timeout); time.Now().Before(end); d = s.diagnose(f, args...) {
		same++
		if !slices.Equal(d.Found(), f.Want) || !d.says(f) {
			same = 0
		}
		if same == required {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	return d
}

// Healthy fails the test if doctor has findings, or skips a check that can run at the site.
func (s *Site) Healthy(t *testing.T) {
	t.Helper()
	s.T = t
	var args []string
	if s.Node != nil {
		args = append(args, "--probe")
	}
	d := s.await(&Fault{Want: []string{}}, args...)
	unavailable := s.unavailableChecks()
	for _, r := range d.Results {
		if r.Status != "pass" && (r.Status != "skip" || !unavailable[r.Code]) {
			t.Errorf("%s: %s %s %v", r.Code, r.Status, r.Reason, r.Findings)
		}
	}
	if d.code != 0 {
		t.Errorf("doctor: exit code %d", d.code)
	}
}

// unavailableChecks returns the codes of checks that cannot run at the site, because what they read does not
// exist or a check that they need cannot run. A simulated site has no pods that answer, and only a site on a
// node can be probed.
func (s *Site) unavailableChecks() map[string]bool {
	s.Helper()
	if s.unavailable != nil {
		return s.unavailable
	}
	output := s.Doctor(s.T, "--list", "-o", "json")
	var list struct {
		Items []struct {
			Metadata     struct{ Name string }
			Needs, Reads []string
		}
	}
	if err := json.Unmarshal([]byte(output.Stdout), &list); err != nil {
		s.Fatalf("%v: %s%s", err, output.Stdout, output.Stderr)
	}
	measured := s.Get(crdKind, "", "pods.metrics.k8s.io") != nil
	lacks := func(read string) bool {
		switch {
		case strings.HasSuffix(read, ", if permitted"):
			return false
		case strings.HasPrefix(read, "PodMetrics."):
			return !measured
		case strings.HasPrefix(read, "PodProxyOptions :9906/"):
			return !s.FloatingAddress
		default:
			return s.Node == nil && !s.LiveDaemons && strings.HasPrefix(read, "PodProxyOptions ")
		}
	}
	s.unavailable = map[string]bool{}
	for _, check := range list.Items {
		code := check.Metadata.Name
		s.unavailable[code] = s.Node == nil && strings.HasPrefix(code, codePrefix+"PRB-") || slices.ContainsFunc(check.Reads, lacks) ||
			slices.ContainsFunc(check.Needs, func(need string) bool { return s.unavailable[need] })
	}
	return s.unavailable
}

// Try breaks the site, compares doctor's findings, also from a bundle, with the expected ones, and mends the
// site.
func (s *Site) Try(t *testing.T, f *Fault) {
	s.T = t
	startedAt := time.Now()
	f.Break(s)
	brokenAt := time.Now()
	bundle := filepath.Join(s.Bundles, fileName(f.Name))
	args := []string{"--save", bundle}
	if f.Probe {
		args = append(args, "--probe")
	}
	if f.As != "" {
		args = append(args, "--as", f.As)
	}
	d := s.await(f, args...)
	s.verify(f, d)
	again := s.Doctor(t, "-o", "json", "--fail-on", "warn", "--from", bundle)
	if again.Stdout != d.text || again.Code != d.code {
		t.Errorf("from the bundle: exit code %d, output\n%s%s", again.Code, again.Stdout, again.Stderr)
	}
	text := s.Doctor(t, "--from", bundle)
	if code, severity, _ := strings.Cut(f.Want[0], " "); !strings.HasPrefix(text.Stdout, severity+"   "+codePrefix+code+" ") {
		t.Errorf("the root cause is not shown first:\n%s%s", text.Stdout, text.Stderr)
	}
	foundAt := time.Now()
	s.Mend()
	after := s.await(&Fault{Want: []string{}}) // without a probe; leftovers appear in the next one
	if found := after.Found(); len(found) > 0 {
		t.Errorf("findings after mending: %q", found)
		for _, r := range after.Results {
			if len(r.Findings) > 0 {
				t.Logf("%s %s %v", r.Code, r.Status, r.Findings)
			}
		}
	}
	t.Logf("broken in %s, found after %s, mended after %s", brokenAt.Sub(startedAt).Round(time.Millisecond), foundAt.Sub(brokenAt).Round(time.Millisecond), time.Since(foundAt).Round(time.Millisecond))
}

// verify expects the findings of the fault and no others.
func (s *Site) verify(f *Fault, d *Diagnosis) {
	s.Helper()
	if found := d.Found(); !slices.Equal(found, f.Want) {
		s.Errorf("found %q, want %q", found, f.Want)
		for _, r := range d.Results {
			if r.Status != "pass" {
				s.Logf("%s %s %s %v", r.Code, r.Status, r.Reason, r.Findings)
			}
		}
	}
	if !d.says(f) {
		s.Errorf("the root cause does not say %q: %v", f.Says, d.Results)
	}
	if d.code != 2 {
		s.Errorf("doctor: exit code %d", d.code)
	}
	roots := map[string]bool{}
	for _, r := range d.Results {
		roots[r.Code] = r.Status == "fail"
	}
	for _, r := range d.Results {
		if r.BlockedBy != "" && (r.Status != "skip" || !roots[r.BlockedBy]) {
			s.Errorf("%s: status %s, blocked by %s; want skip, blocked by a failed check of %v", r.Code, r.Status, r.BlockedBy, slices.Sorted(maps.Keys(roots)))
		}
		if r.Inconclusive && !f.Inconclusive && !s.unavailableChecks()[r.Code] {
			s.Errorf("%s is inconclusive: %s", r.Code, r.Reason)
		}
	}
}

// diagnose runs doctor, and expects no finding with a text that the fault forbids.
func (s *Site) diagnose(f *Fault, args ...string) *Diagnosis {
	s.Helper()
	d := s.Diagnose(args...)
	for _, r := range d.Results {
		for _, one := range r.Findings {
			text := strings.Join(append(one.Evidence, one.Message, one.Remedy), "\n")
			for _, wrong := range f.Never {
				if strings.Contains(text, wrong) {
					s.Errorf("%s says %q: %v", r.Code, wrong, one)
				}
			}
		}
	}
	return d
}

// says reports whether a finding of the root cause contains the text of the fault.
func (d *Diagnosis) says(f *Fault) bool {
	if f.Says == "" {
		return true
	}
	code, _, _ := strings.Cut(f.Want[0], " ")
	return slices.ContainsFunc(d.Results, func(r Result) bool {
		return r.Code == codePrefix+code && slices.ContainsFunc(r.Findings, func(one Finding) bool {
			return slices.ContainsFunc(append(one.Evidence, one.Message, one.Remedy), func(text string) bool { return strings.Contains(text, f.Says) })
		})
	})
}

// fileName returns the file name of a fault's bundle.
func fileName(name string) string {
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-"), "-") + ".tar.gz"
}
