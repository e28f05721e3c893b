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

// Diagnosis is what doctor says in JSON, as far as it is looked at here.
type Diagnosis struct {
	Results []Result

	text string
	code int
}

// Result is how one check has ended.
type Result struct {
	Code, Status, Reason, BlockedBy string
	Inconclusive                    bool
	Findings                        []Finding
}

// Finding is what a check has found.
type Finding struct {
	Severity, Message, Remedy string
	Object                    struct{ Kind, Namespace, Name string }
}

// Found are the checks that found something, as a Fault's Want has them.
func (d *Diagnosis) Found() []string {
	found := []string{}
	for _, status := range []string{"fail", "error", "warn"} {
		for _, r := range d.Results {
			if r.Status == status {
				found = append(found, strings.TrimPrefix(r.Code, prefix)+" "+status)
			}
		}
	}
	return found
}

// prefix is what all codes have.
const prefix = "OOOI-"

// Diagnose has doctor look, with further arguments.
func (s *Site) Diagnose(args ...string) *Diagnosis {
	s.Helper()
	answer := s.Doctor(s.T, append([]string{"-o", "json", "--fail-on", "warn"}, args...)...)
	d := &Diagnosis{text: answer.Out, code: answer.Code}
	if err := json.Unmarshal([]byte(answer.Out), d); err != nil {
		s.Fatalf("doctor ended with %d: %v: %s%s", answer.Code, err, answer.Out, answer.Said)
	}
	return d
}

// settled is how many looks in a row have to be the same where the site takes its time.
const settled = 2

// await has doctor look until it finds something, for as long as the site's patience lasts.
func (s *Site) await(want []string, args ...string) *Diagnosis {
	s.Helper()
	d := s.Diagnose(args...)
	if s.Patience == 0 {
		return d
	}
	same, settled := 0, settled
	if slices.Contains(args, "--probe") { // which takes long enough
		settled = 1
	}
	for end := time.Now().Add(s.Patience); time.Now().Before(end); d = s.Diagnose(args...) {
		same++
		if !slices.Equal(d.Found(), want) {
			same = 0
		}
		if same == settled {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	return d
}

// Healthy expects no finding, and that every check is made that can be.
func (s *Site) Healthy(t *testing.T) {
	t.Helper()
	s.T = t
	var args []string
	if s.Node != nil {
		args = append(args, "--probe")
	}
	d := s.await([]string{}, args...)
	without := s.without()
	for _, r := range d.Results {
		if r.Status != "pass" && (r.Status != "skip" || !without[r.Code]) {
			t.Errorf("%s: %s %s %v", r.Code, r.Status, r.Reason, r.Findings)
		}
	}
	if d.code != 0 {
		t.Errorf("doctor ended with %d", d.code)
	}
}

// without are the checks that cannot be made at the site, by their codes, for want of what they read,
// and those that need them: at a simulated one pods cannot be asked, nor can anybody look from the VLAN.
func (s *Site) without() map[string]bool {
	s.Helper()
	if s.unmade != nil {
		return s.unmade
	}
	answer := s.Doctor(s.T, "--list", "-o", "json")
	var list struct {
		Items []struct {
			Metadata     struct{ Name string }
			Needs, Reads []string
		}
	}
	if err := json.Unmarshal([]byte(answer.Out), &list); err != nil {
		s.Fatalf("%v: %s%s", err, answer.Out, answer.Said)
	}
	measured := s.There(crdKind, "", "pods.metrics.k8s.io") != nil
	lacks := func(read string) bool {
		switch {
		case strings.HasPrefix(read, "PodMetrics."):
			return !measured
		case strings.HasPrefix(read, "PodProxyOptions :9906/"):
			return !s.Floats
		default:
			return s.Node == nil && !s.Alive && strings.HasPrefix(read, "PodProxyOptions ")
		}
	}
	s.unmade = map[string]bool{}
	for _, check := range list.Items {
		code := check.Metadata.Name
		s.unmade[code] = s.Node == nil && strings.HasPrefix(code, prefix+"PRB-") || slices.ContainsFunc(check.Reads, lacks) ||
			slices.ContainsFunc(check.Needs, func(need string) bool { return s.unmade[need] })
	}
	return s.unmade
}

// Try makes a fault, holds what doctor says against what it should, and mends the site.
func (s *Site) Try(t *testing.T, f *Fault) {
	s.T = t
	began := time.Now()
	f.Break(s)
	made := time.Now()
	bundle := filepath.Join(s.Bundles, fileName(f.Name))
	args := []string{"--save", bundle}
	if f.Probe {
		args = append(args, "--probe")
	}
	if f.As != "" {
		args = append(args, "--as", f.As)
	}
	d := s.await(f.Want, args...)
	s.judge(f, d)
	again := s.Doctor(t, "-o", "json", "--fail-on", "warn", "--from", bundle)
	if again.Out != d.text || again.Code != d.code {
		t.Errorf("from the bundle it ends with %d, and says\n%s%s", again.Code, again.Out, again.Said)
	}
	text := s.Doctor(t, "--from", bundle)
	if code, severity, _ := strings.Cut(f.Want[0], " "); !strings.HasPrefix(text.Out, severity+"   "+prefix+code+" ") {
		t.Errorf("the root is not what is shown first:\n%s%s", text.Out, text.Said)
	}
	broken := time.Now()
	s.Mend()
	if found := s.await([]string{}).Found(); len(found) > 0 { // what a probe would find the next one shows
		t.Errorf("after it was mended: %q", found)
	}
	t.Logf("made in %s, found after %s, mended after %s", made.Sub(began).Round(time.Millisecond), broken.Sub(made).Round(time.Millisecond), time.Since(broken).Round(time.Millisecond))
}

// judge looks whether the fault was found, and nothing else.
func (s *Site) judge(f *Fault, d *Diagnosis) {
	s.Helper()
	if found := d.Found(); !slices.Equal(found, f.Want) {
		s.Errorf("found %q, want %q", found, f.Want)
		for _, r := range d.Results {
			if r.Status != "pass" {
				s.Logf("%s %s %s %v", r.Code, r.Status, r.Reason, r.Findings)
			}
		}
	}
	if d.code != 2 {
		s.Errorf("doctor ended with %d", d.code)
	}
	roots := map[string]bool{}
	for _, r := range d.Results {
		roots[r.Code] = r.Status == "fail"
	}
	for _, r := range d.Results {
		if r.BlockedBy != "" && (r.Status != "skip" || !roots[r.BlockedBy]) {
			s.Errorf("%s: %s, and blocked by %s, of %v", r.Code, r.Status, r.BlockedBy, slices.Sorted(maps.Keys(roots)))
		}
		if r.Inconclusive && !f.Unheard && !s.without()[r.Code] {
			s.Errorf("%s could not be looked at: %s", r.Code, r.Reason)
		}
	}
}

// fileName is that of a fault's bundle.
func fileName(name string) string {
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-"), "-") + ".tar.gz"
}
