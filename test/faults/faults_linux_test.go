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

Faults that tests make at a site, and what [doctor](doctor.md) reports. The first check of a fault is the root cause.
Doctor reports the same from a bundle. The tests write this page: ` + "`go test ./test/faults -run TestFaultsAreDocumented -update`" + `.
`)
	for _, c := range []struct {
		title  string
		faults []faults.Fault
	}{
		{"Objects", faults.OnAPIServer()},
		{"Processes and their pages", faults.OnRunning(nil)},
		{"Nodes, pods and the VLAN", faults.OnNode()},
		{"Floating address", faults.OnFloatingAddress()},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| fault | check and result | needs `--probe` |\n|---|---|---|\n", c.title)
		for _, f := range c.faults {
			var found []string
			for _, want := range f.Want {
				code, severity, _ := strings.Cut(want, " ")
				found = append(found, fmt.Sprintf("[OOOI-%s](doctor.md#oooi-%s) %s", code, strings.ToLower(code), severity))
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", f.Name, strings.Join(found, ", "), map[bool]string{true: "yes"}[f.Probe])
		}
	}
	golden.Check(t, "../../docs/reference/faults.md", b.String())
}
