package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

func TestChecksAreInOrder(t *testing.T) {
	var seen []string
	for _, c := range Checks() {
		if !regexp.MustCompile(`^OOOI-[A-Z]{2,4}-[0-9]{3}$`).MatchString(c.Code) || slices.Contains(seen, c.Code) {
			t.Errorf("%s is no code, or has another check", c.Code)
		}
		for _, need := range c.Needs {
			if !slices.Contains(seen, need) {
				t.Errorf("%s needs %s, which is not before it", c.Code, need)
			}
		}
		if c.Title == "" || strings.HasSuffix(c.Title, ".") {
			t.Errorf("%s: the title is %q", c.Code, c.Title)
		}
		seen = append(seen, c.Code)
	}
}

// TestEveryCodeIsExplained holds docs/doctor.md against the checks.
func TestEveryCodeIsExplained(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	var written []string
	for _, m := range regexp.MustCompile(`(?m)^### (OOOI-[A-Z]+-[0-9]+)$`).FindAllStringSubmatch(string(text), -1) {
		written = append(written, m[1])
	}
	var codes []string
	for _, c := range Checks() {
		codes = append(codes, c.Code)
		if !strings.Contains(string(text), "### "+c.Code+"\n\n"+strings.ToUpper(c.Title[:1])+c.Title[1:]+".") {
			t.Errorf("docs/doctor.md has no section %s that begins with its title, %q", c.Code, c.Title)
		}
	}
	slices.Sort(codes)
	slices.Sort(written)
	if !slices.Equal(codes, written) {
		t.Errorf("the docs have %v, the checks are %v", written, codes)
	}
}
