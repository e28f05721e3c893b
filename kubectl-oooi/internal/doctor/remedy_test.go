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
	setupRemedy = regexp.MustCompile(`(?:^|, )run 'kubectl oooi setup -f FILE' ((?:with|again)[^;:]*)`)
	flagPattern = regexp.MustCompile(`--[a-z-]+(=[a-z]+)?`)
	// otherRemedy matches a command line of a remedy without placeholders.
	otherRemedy = regexp.MustCompile(`'kubectl oooi ((?:status|routes|leases|resolve|doctor|teardown)[^'A-Z]*)'`)
)

// runSetup runs diff, which the remedies recommend first, and setup with the flags of the remedies.
func (s *testSite) runSetup(t *testing.T, remedies ...string) {
	t.Helper()
	var flags []string
	for _, remedy := range remedies {
		how := setupRemedy.FindStringSubmatch(remedy)
		if how == nil {
			t.Fatalf("the remedy does not run setup: %s", remedy)
		}
		flags = append(flags, flagPattern.FindAllString(how[1], -1)...)
	}
	s.commands.T = t
	if _, stderr, code := s.commands.Run(append([]string{"diff", "-f", "FILE"}, flags...)...); code > 1 { // 1 means that objects differ
		t.Errorf("diff %v: exit code %d: %s", flags, code, stderr)
	}
	if _, stderr, code := s.commands.Run(append([]string{"setup", "-f", "FILE", "--wait=false"}, flags...)...); code != 0 {
		t.Errorf("setup %v: exit code %d: %s", flags, code, stderr)
	}
}

// runRemedy runs a command line of a remedy other than setup. After teardown, the check must find nothing.
func (s *testSite) runRemedy(t *testing.T, fault, code string, line []string) {
	t.Helper()
	if line[0] == "teardown" {
		line = append(line, "--yes")
	}
	s.commands.T = t
	if _, stderr, exit := s.commands.Run(line...); exit != 0 {
		t.Errorf("%s: %q exited with %d: %s", fault, line, exit, stderr)
	}
	if line[0] == "teardown" {
		if d := s.Diagnose("--only", code); len(d.Found()) > 0 {
			t.Errorf("%s: after %q: %v", fault, line, d.Results)
		}
	}
}

// TestRemediesThatRunSetup applies the remedies that only run setup, each once for a check and a kind of object, and
// expects their findings to be fixed. It also runs the other command lines in remedies, of each command once.
func TestRemediesThatRunSetup(t *testing.T) {
	s := newTestSite(t)
	tried, ran := 0, map[string]bool{}
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
				for _, line := range otherRemedy.FindAllStringSubmatch(found.Remedy, -1) {
					words := strings.Fields(line[1])
					command := words[0] + strings.Join(flagPattern.FindAllString(line[1], -1), "")
					if !ran[command] {
						ran[command] = true
						s.runRemedy(t, f.Name, r.Code, words)
					}
				}
				if strings.Contains(found.Remedy, "restarts pod ") || strings.Contains(found.Remedy, "restarts the pods ") || found.Object.Kind == "StatefulSet" || found.Object.Kind == "Pod" {
					continue // pods that setup replaces, or with which it checks a change, do not run here
				}
				applied := fmt.Sprint(r.Code, found.Object.Kind, flagPattern.FindAllString(found.Remedy, -1))
				if setupRemedy.MatchString(found.Remedy) && slices.Contains(f.Want, strings.TrimPrefix(r.Code, "OOOI-")+" "+found.Severity) && !ran[applied] {
					ran[applied] = true
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
	for _, command := range []string{"status", "routes", "teardown"} {
		if !ran[command] {
			t.Errorf("no remedy runs %s", command)
		}
	}
}
