package doctor

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

func TestChecksAreInOrder(t *testing.T) {
	var seen []string
	for _, c := range Checks() {
		if !regexp.MustCompile(`^OOOI-[A-Z]{2,4}-[0-9]{3}$`).MatchString(c.Code) || slices.Contains(seen, c.Code) {
			t.Errorf("%s is no valid code, or is used twice", c.Code)
		}
		for _, need := range slices.Concat(c.Needs, c.After) {
			if !slices.Contains(seen, need) {
				t.Errorf("%s needs %s, which does not come before it", c.Code, need)
			}
		}
		if c.Title == "" || strings.HasSuffix(c.Title, ".") {
			t.Errorf("%s: the title is %q", c.Code, c.Title)
		}
		seen = append(seen, c.Code)
	}
}

// TestEveryCodeIsDocumented compares docs/reference/doctor.md with the checks.
func TestEveryCodeIsDocumented(t *testing.T) {
	text := lab.ReadFile(t, "docs", "reference", "doctor.md")
	var written []string
	for _, m := range regexp.MustCompile(`(?m)^### (OOOI-[A-Z]+-[0-9]+)$`).FindAllStringSubmatch(string(text), -1) {
		written = append(written, m[1])
	}
	var codes []string
	for _, c := range Checks() {
		codes = append(codes, c.Code)
		if !strings.Contains(string(text), "### "+c.Code+"\n\n"+strings.ToUpper(c.Title[:1])+c.Title[1:]+".") {
			t.Errorf("docs/reference/doctor.md has no section %s that begins with its title, %q", c.Code, c.Title)
		}
	}
	slices.Sort(codes)
	slices.Sort(written)
	if !slices.Equal(codes, written) {
		t.Errorf("the docs have %v, the checks are %v", written, codes)
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
