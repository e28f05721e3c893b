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
	run := newTest(&Runner{}, s, nil)
	var b strings.Builder
	for _, one := range Scenarios() {
		var requests strings.Builder
		why := run.requests(&one, func(c Client, s *step) { fmt.Fprintf(&requests, "  from %s: %s\n", c, s.label) })
		fmt.Fprintf(&b, "%s\n%s", strings.TrimSuffix(one.Name+": "+why, ": "), &requests)
	}
	golden.Check(t, filepath.Join("testdata", "requests.txt"), b.String())
}
