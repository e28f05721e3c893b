package doctor_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/faults"
)

// setupIn finds a remedy that is to run setup with the same input, and how; flagIn finds flags there.
var (
	setupIn = regexp.MustCompile(`(?:^|, )run 'kubectl oooi setup' ((?:with|again)[^;:]*)`)
	flagIn  = regexp.MustCompile(`--[a-z-]+(=[a-z]+)?`)
)

// carryOut does what remedies say, which is to run setup.
func (p *patient) carryOut(t *testing.T, remedies ...string) {
	t.Helper()
	line := []string{"setup", "-f", "FILE", "--wait=false"}
	for _, remedy := range remedies {
		how := setupIn.FindStringSubmatch(remedy)
		if how == nil {
			t.Fatalf("not to run setup: %s", remedy)
		}
		line = append(line, flagIn.FindAllString(how[1], -1)...)
	}
	p.site.T = t
	if _, said, code := p.site.Run(line...); code != 0 {
		t.Errorf("%v ended with %d: %s", line, code, said)
	}
}

// TestRemediesThatRunSetupMend does what doctor says wherever that is to run setup, and nothing else.
func TestRemediesThatRunSetupMend(t *testing.T) {
	p := newPatient(t)
	tried := 0
	for _, f := range faults.OnAPIServer() {
		p.T, p.site.T = t, t
		f.Break(p.Site)
		var args []string
		if f.As != "" {
			args = append(args, "--as", f.As)
		}
		var about, remedies []string
		for _, r := range p.Diagnose(args...).Results {
			for _, found := range r.Findings {
				if strings.Contains(found.Remedy, "restarts pod ") {
					continue // which does not come up here
				}
				if setupIn.MatchString(found.Remedy) && slices.Contains(f.Want, strings.TrimPrefix(r.Code, "OOOI-")+" "+found.Severity) {
					about, remedies = append(about, fmt.Sprint(r.Code, " ", found.Object)), append(remedies, found.Remedy)
				}
			}
		}
		if len(about) > 0 {
			tried++
			t.Run(f.Name, func(t *testing.T) {
				p.T = t
				p.carryOut(t, remedies...)
				for _, r := range p.Diagnose().Results {
					for _, found := range r.Findings {
						if slices.Contains(about, fmt.Sprint(r.Code, " ", found.Object)) {
							t.Errorf("%s %v is still found, with the remedy %q", r.Code, found, found.Remedy)
						}
					}
				}
			})
		}
		if len(about) > 0 {
			p = newPatient(t) // there is nothing left to mend
		} else {
			p.T, p.site.T = t, t
			p.Mend()
		}
	}
	if tried == 0 {
		t.Error("there is no such remedy")
	}
}
