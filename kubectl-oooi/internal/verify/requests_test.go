package verify

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/test/golden"
)

// TestRequestsOfASite compares the requests of all scenarios, which follow from a site's objects, with a golden file.
func TestRequestsOfASite(t *testing.T) {
	facts, err := doctor.Load(filepath.Join("testdata", "site"), func(text string) { t.Log(text) })
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(facts, "clusters/demo")
	if s == nil {
		t.Fatal("the site cannot be read")
	}
	s.client, s.hostname, s.label = "02:00:00:00:00:01", "demo-test-abcde", "test-fghij"
	w := &work{site: s}
	var b strings.Builder
	for _, one := range Scenarios() {
		w.add(&one)
		fmt.Fprintf(&b, "%s\n", strings.TrimSuffix(one.Name+": "+w.why[one.Name], ": "))
		for _, task := range w.todo[one.Name] {
			fmt.Fprintf(&b, "  from %s: %s\n", task.client, task.label)
		}
	}
	golden.Check(t, filepath.Join("testdata", "requests.txt"), b.String())
}
