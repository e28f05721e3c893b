package faults_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/golden"
)

// TestFaultsAreDocumented compares docs/reference/faults.md with the catalogue.
func TestFaultsAreDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Faults that doctor finds

Faults that tests create at a site, and what [doctor](doctor.md) reports first. Later findings are consequences, or other faults.
The tests write this page: ` + "`go test ./test/faults -run TestFaultsAreDocumented -update`" + `.
`)
	for _, c := range []struct {
		title  string
		groups []faults.Group
	}{
		{"Objects and daemons", faults.OnRunning(nil)},
		{"Nodes, pods and the VLAN", faults.OnNode(nil)},
		{"Floating address", faults.OnFloatingAddress(nil)},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| fault | check and result | needs `--probe` |\n|---|---|---|\n", c.title)
		for _, g := range c.groups {
			for _, f := range g.Faults {
				code, severity, _ := strings.Cut(f.Want, " ")
				prefix, _, _ := strings.Cut(strings.ToLower(code), "-")
				fmt.Fprintf(&b, "| %s | [OOOI-%s](doctor-%s.md#oooi-%s) %s | %s |\n", f.Name, code, prefix, strings.ToLower(code), severity, map[bool]string{true: "yes"}[f.Probe])
			}
		}
	}
	golden.Check(t, "../../docs/reference/faults.md", b.String())
}
