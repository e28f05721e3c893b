package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestInvalidFlagsOfHold(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	valid := []string{"hold", "--lease", "clusters/proxy", "--address", "192.0.2.4"}
	with := func(more ...string) []string { return slices.Concat(valid, more) }
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no Lease", []string{"hold", "--address", "192.0.2.4"}, `required flag(s) "lease" not set`},
		{"no address", []string{"hold", "--lease", "clusters/proxy"}, `required flag(s) "address" not set`},
		{"no identity", with("--identity", ""), "--identity is missing: want a name"},
		{"an invalid address", with("--address", "proxy"), `for "--address" flag: "proxy" is not an IP address`},
		{"an invalid witness", with("--witness", "dns"), `for "--witness" flag: "dns" is not an IP address`},
		{"a ready check without a URL", with("--ready", "9901"), `--ready "9901": want a URL`},
		{"limits of a network without a rate", with("--source-network", "192.0.2.0/24=5"), `for "--source-network" flag: "192.0.2.0/24=5" must be CIDR=NUMBER/NUMBER`},
		{"limits of a network with host bits", with("--source-network", "192.0.2.1/24=5/5"), "limits of sources: network 192.0.2.1/24: want a network without host bits"},
		{"an invalid prefix length", with("--source-prefix-length", "33"), "limits of sources: prefix length 33: want 1 to 32"},
		{"a missing interface", with("--kubeconfig", kubeconfig, "--device", "nowhere", "--http", "127.0.0.1:0"), "finding interface nowhere"},
		{"a missing kubeconfig", with("--kubeconfig", "missing.yaml"), "missing.yaml"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := run(t.Context(), tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one that contains %q", err, tc.want)
			}
		})
	}
}

// TestFlagsOfHoldAreDocumented compares the flags of xdsd hold and their default durations with
// docs/reference/floating-address.md.
func TestFlagsOfHoldAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/floating-address.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "<!-- flags: xdsd hold -->")
	if !found {
		t.Fatal("floating-address.md has no table of the flags")
	}
	table, _, _ = strings.Cut(strings.TrimSpace(table), "\n\n")
	documented := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for _, flag := range regexp.MustCompile("`--([a-z0-9-]+)`").FindAllStringSubmatch(cells[1], -1) {
			documented[flag[1]] = true
			if f := newHoldCommand().Flags().Lookup(flag[1]); f == nil {
				t.Errorf("--%s is documented but not a flag", flag[1])
			} else if d := strings.Trim(strings.TrimSpace(cells[2]), "`"); strings.HasSuffix(f.DefValue, "s") && d != f.DefValue {
				t.Errorf("--%s has the default %s, documented as %s", f.Name, f.DefValue, d)
			}
		}
	}
	newHoldCommand().LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !documented[f.Name] {
			t.Errorf("--%s is not documented", f.Name)
		}
	})
}
