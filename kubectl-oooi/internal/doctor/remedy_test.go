package doctor_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/faults"
)

// setupRemedy matches a remedy that runs setup with the same input and captures its arguments, in which
// flagPattern matches flags.
var (
	setupRemedy = regexp.MustCompile(`(?:^|, )run 'kubectl oooi setup' ((?:with|again)[^;:]*)`)
	flagPattern = regexp.MustCompile(`--[a-z-]+(=[a-z]+)?`)
)

// runSetup runs setup with the flags of the remedies.
func (s *testSite) runSetup(t *testing.T, remedies ...string) {
	t.Helper()
	line := []string{"setup", "-f", "FILE", "--wait=false"}
	for _, remedy := range remedies {
		how := setupRemedy.FindStringSubmatch(remedy)
		if how == nil {
			t.Fatalf("the remedy does not run setup: %s", remedy)
		}
		line = append(line, flagPattern.FindAllString(how[1], -1)...)
	}
	s.commands.T = t
	if _, stderr, code := s.commands.Run(line...); code != 0 {
		t.Errorf("%v: exit code %d: %s", line, code, stderr)
	}
}

// TestRemediesThatRunSetup applies the remedies that only run setup, and expects their findings to be fixed.
func TestRemediesThatRunSetup(t *testing.T) {
	s := newTestSite(t)
	tried := 0
	for _, f := range faults.OnAPIServer() {
		s.T, s.commands.T = t, t
		f.Break(s.Site)
		var args []string
		if f.As != "" {
			args = append(args, "--as", f.As)
		}
		var about, remedies []string
		for _, r := range s.Diagnose(args...).Results {
			for _, found := range r.Findings {
				if strings.Contains(found.Remedy, "restarts pod ") {
					continue // replaced pods do not become ready here
				}
				if setupRemedy.MatchString(found.Remedy) && slices.Contains(f.Want, strings.TrimPrefix(r.Code, "OOOI-")+" "+found.Severity) {
					about, remedies = append(about, fmt.Sprint(r.Code, " ", found.Object)), append(remedies, found.Remedy)
				}
			}
		}
		if len(about) > 0 {
			tried++
			t.Run(f.Name, func(t *testing.T) {
				s.T = t
				s.runSetup(t, remedies...)
				for _, r := range s.Diagnose().Results {
					for _, found := range r.Findings {
						if slices.Contains(about, fmt.Sprint(r.Code, " ", found.Object)) {
							t.Errorf("after the remedy: %s %v, with remedy %q", r.Code, found, found.Remedy)
						}
					}
				}
			})
		}
		if len(about) > 0 {
			s = newTestSite(t) // nothing is left to undo
		} else {
			s.T, s.commands.T = t, t
			s.Mend()
		}
	}
	if tried == 0 {
		t.Error("no remedy runs setup")
	}
}
