package verify

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/golden"
)

// TestRequestsOfASite compares the requests of all scenarios, which follow from a site's objects, with a golden file.
func TestRequestsOfASite(t *testing.T) {
	s := load(t)
	s.client, s.hostname, s.label = net.HardwareAddr{2, 0, 0, 0, 0, 1}, "demo-test-abcde", "test-fghij"
	scenarios := Scenarios()
	p := newPlan(s, scenarios)
	var b strings.Builder
	for i := range scenarios {
		one := &scenarios[i]
		switch steps := p.steps[one.Name]; {
		case len(steps) > 0:
			fmt.Fprintln(&b, one.Name)
			for _, s := range steps {
				fmt.Fprintf(&b, "  from %s: %s\n", s.client, s.label)
			}
		case one.Group == GroupDisruption:
			fmt.Fprintln(&b, one.Name)
		default:
			fmt.Fprintf(&b, "%s: %s\n", one.Name, p.whyNot(one))
		}
	}
	golden.Check(t, filepath.Join("testdata", "requests.txt"), b.String())
}
