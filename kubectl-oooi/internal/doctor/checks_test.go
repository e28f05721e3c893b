package doctor

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// orderedChecks returns all checks in their order.
func orderedChecks(t testing.TB) []Check {
	t.Helper()
	checks, err := Checks()
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

func TestChecksAreValid(t *testing.T) {
	for _, c := range orderedChecks(t) {
		if !regexp.MustCompile(`^OOOI-[A-Z]{2,4}-[0-9]{3}$`).MatchString(c.Code) {
			t.Errorf("%s is no valid code", c.Code)
		}
		if c.Title == "" || strings.HasSuffix(c.Title, ".") {
			t.Errorf("%s: the title is %q", c.Code, c.Title)
		}
	}
}

func TestOrder(t *testing.T) {
	for _, tc := range []struct {
		// checks are codes, each followed by those of its Needs and, after a slash, of its After.
		name, checks, want, err string
	}{
		{"by code", "C, A, B", "A B C", ""},
		{"dependencies first", "A B, B C, C", "C B A", ""},
		{"After", "A /B, B D/C, C, D", "C D B A", ""},
		{"no later than necessary", "D, C A, A, B D", "A C D B", ""},
		{"unknown code", "A X", "", "A depends on X, which does not exist"},
		{"unknown code in After", "A /X", "", "A depends on X, which does not exist"},
		{"code used twice", "A, B, A", "", "two checks have code A"},
		{"cycle", "A B, B C, C D, D B, E", "", "their dependencies form a cycle: B, C, D"},
		{"dependency on itself", "A /A", "", "their dependencies form a cycle: A"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var checks []Check
			for text := range strings.SplitSeq(tc.checks, ", ") {
				code, dependencies, _ := strings.Cut(text, " ")
				needs, after, _ := strings.Cut(dependencies, "/")
				checks = append(checks, Check{Code: code, Needs: strings.Fields(needs), After: strings.Fields(after)})
			}
			ordered, err := order(checks)
			var codes []string
			for _, c := range ordered {
				codes = append(codes, c.Code)
			}
			if got := strings.Join(codes, " "); got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.HasSuffix(err.Error(), ": "+tc.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, tc.want, tc.err)
			}
		})
	}
}

// TestAfterSkipsChecks expects a check to be skipped if a check in its After fails, and to run if that one was
// skipped.
func TestAfterSkipsChecks(t *testing.T) {
	ref := model.Ref{Kind: "Infra", Namespace: "clusters", Name: "demo"}
	fails := func(*Site) []Finding { return []Finding{failed(ref, "r", "f")} }
	checks := []Check{
		{Code: "A", Run: fails},
		{Code: "B", After: []string{"A"}, Run: fails},
		{Code: "C", After: []string{"B"}, Run: fails},
		{Code: "D", Reads: in(AtInfra, pods), Run: fails},
		{Code: "E", After: []string{"D"}, Run: fails},
		{Code: "F", Run: func(*Site) []Finding { return []Finding{warned(ref, "r", "w")} }},
		{Code: "G", After: []string{"F"}, Run: fails},
	}
	facts, site := siteOf(t)
	facts.unread[place{pods, "clusters"}] = "forbidden"
	var got []string
	for _, r := range Diagnose(site, checks, func(string) bool { return true }).Results {
		got = append(got, strings.TrimSpace(r.Code+" "+string(r.Status)+" "+r.BlockedBy))
	}
	if diff := cmp.Diff([]string{"A fail", "B skip A", "C skip A", "D skip", "E fail", "F warn", "G fail"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestFailuresOfParts expects a failure of one upstream to leave checks of others.
func TestFailuresOfParts(t *testing.T) {
	ref := model.Ref{Kind: "Infra", Namespace: "clusters", Name: "demo"}
	of := func(scopes ...string) func(*Site) []Finding {
		return func(*Site) []Finding {
			var list []Finding
			for _, scope := range scopes {
				list = append(list, failed(ref, "r", "message").because("of "+scope).of(scope))
			}
			return list
		}
	}
	extra, api, one := upstreamScope("extra"), upstreamScope("api"), hostScope(netip.MustParseAddr("192.0.2.10"))
	backend := func(name string) func(*Site) string { return func(*Site) string { return name } }
	checks := []Check{
		{Code: "A", Component: v1alpha1.ComponentProxy, Run: of(extra)},
		{Code: "B", Component: v1alpha1.ComponentProxy, Needs: []string{"A"}, Run: of(extra)},
		{Code: "C", Component: v1alpha1.ComponentProxy, Needs: []string{"B"}, Run: of(extra, api)},
		{Code: "D", Needs: []string{"B"}, Run: of(extra)},
		{Code: "E", After: []string{"A"}, Backend: backend("api"), Run: of(allComponents)},
		{Code: "F", After: []string{"A"}, Backend: backend("extra"), Run: of(allComponents)},
		{Code: "G", Component: v1alpha1.ComponentProxy, Run: of(v1alpha1.ComponentProxy)},
		{Code: "H", Needs: []string{"G"}, Run: of(api)},
		{Code: "I", Run: of("port 443", "port 6443")},
		{Code: "J", Run: of(one)},
		{Code: "K", After: []string{"J"}, Run: of(one, v1alpha1.ComponentDHCP)},
		{Code: "L", After: []string{"J"}, Run: of(allComponents)},
	}
	_, site := siteOf(t)
	var got []string
	for _, r := range Diagnose(site, checks, func(string) bool { return true }).Results {
		line := strings.TrimSpace(r.Code + " " + string(r.Status) + " " + r.BlockedBy)
		for _, f := range r.Findings {
			line += ": " + strings.Join(f.Evidence, ", ")
		}
		got = append(got, line)
	}
	want := []string{"A fail: of upstream extra", "B skip A", "C fail: of upstream api", "D skip A", "E fail: of ", "F skip A", "G fail: of proxy", "H skip G", "I fail: of port 443, of port 6443", "J fail: of host 192.0.2.10", "K fail: of dhcp", "L fail: of "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
