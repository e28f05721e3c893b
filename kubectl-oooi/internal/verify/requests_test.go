package verify

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/golden"
)

// TestRequestsOfASite compares the requests of all scenarios, which follow from a site's objects, with a golden file.
func TestRequestsOfASite(t *testing.T) {
	s := load(t)
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
