package cmd

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDoctorRejectsInvalidFlags(t *testing.T) {
	for line, want := range map[string]string{
		"doctor --fail-on=maybe":    `--fail-on "maybe": want fail, warn or never`,
		"doctor --only OOOI-XYZ":    "unknown check OOOI-XYZ",
		"doctor --save a --from b":  "--save and --from are mutually exclusive",
		"doctor -o nothing":         `--output "nothing"`,
		"doctor --from /there/is/0": "reading the bundle",
	} {
		_, stderr, code := runMain(t, append([]string{"kubectl-oooi"}, strings.Fields(line)...)...)
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s exited with %d, stderr %s", line, code, stderr)
		}
	}
	out, _, code := runMain(t, "kubectl-oooi", "doctor", "--list", "--only", "oooi-hc")
	if code != 0 || strings.Count(out, "OOOI-HC-") < 4 || strings.Contains(out, "OOOI-DNS-001") {
		t.Errorf("doctor --list exited with %d: %s", code, out)
	}
}

func TestChecksAreListed(t *testing.T) {
	for format, has := range map[string]string{
		"json": `"kind": "CheckList"`, "yaml": "kind: CheckList", "name": "check.report.densityops.com/OOOI-API-001", "wide": "READS",
		"jsonpath={.items[0].reads[0]}": "CustomResourceDefinition.apiextensions.k8s.io in everywhere",
	} {
		out, stderr, code := runMain(t, "kubectl-oooi", "doctor", "--list", "-o", format)
		if code != 0 || stderr != "" || !strings.Contains(out, has) {
			t.Errorf("-o %s exited with %d, stderr %q; no %q in %s", format, code, stderr, has, out)
		}
	}
	out, _, _ := runMain(t, "kubectl-oooi", "doctor", "--list", "-o", "json", "--only", "OOOI-HC")
	var list struct{ Items []checkReport }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		if !strings.HasPrefix(c.Metadata.Name, "OOOI-HC-") || c.Title == "" || !strings.HasSuffix(c.Docs, strings.ToLower("#"+c.Metadata.Name)) || len(c.Reads) == 0 {
			t.Errorf("%+v", c)
		}
	}
}
