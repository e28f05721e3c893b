package api_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestHardeningPolicy applies the admission policy of docs/how-to/harden.md, and creates objects that it accepts and refuses.
func TestHardeningPolicy(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(   apiVersion: [^\n]*\n   kind: ValidatingAdmissionPolicy\n.*?)```").
		FindSubmatch(read(t, "../docs/how-to/harden.md"))
	if block == nil {
		t.Fatal("docs/how-to/harden.md lacks a ValidatingAdmissionPolicy")
	}
	policy := []byte(strings.ReplaceAll("\n"+string(block[1]), "\n   ", "\n"))
	refusal := func(kind, spec string) string {
		if err := dryRunCreate(t, kind, spec); err != nil {
			return err.Error()
		}
		return ""
	}
	wide := "egress: {hosts: ['*'], allowAll: true}"
	cp := server.Get(t)
	lab.Must(t, cp.ApplyYAML(t.Context(), policy))
	defer func() {
		lab.Must(t, cp.DeleteYAML(t.Context(), policy))
		lab.Await(t, "the policy to be deleted", func() string { return refusal("Infra", wide) })
	}()
	lab.Poll(t, "the policy to take effect", func() bool { return refusal("Infra", wide) != "" })

	for _, tc := range []struct{ kind, spec, want string }{
		{"Infra", "", ""},
		{"ProxyServer", "", ""},
		{"Infra", "{egress: {hosts: [quay.io]}, infraComponents: {dns: {serverIP: 192.0.2.3, image: registry.example.com/oooi/oooi:v1}}}", ""},
		{"Infra", wide, "egress to all names is not permitted"},
		{"Infra", "egress: {hosts: [quay.io], allowAddresses: [10.0.0.0/8]}", "egress to private addresses is not permitted"},
		{"Infra", "infraComponents: {dns: {serverIP: 192.0.2.3, image: quay.io/other/oooi:v1}}", "images must be in registry.example.com/oooi"},
		{"Infra", "infraComponents: {proxy: {serverIP: 192.0.2.4, image: registry.example.com/oooi.evil/x}}", "images must be in registry.example.com/oooi"},
		{"ProxyServer", wide, "egress to all names is not permitted"},
		{"ProxyServer", "image: quay.io/other/oooi:v1", "images must be in registry.example.com/oooi"},
	} {
		if got := refusal(tc.kind, tc.spec); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s %q: %q, expected %q", tc.kind, tc.spec, got, tc.want)
		}
	}
}
