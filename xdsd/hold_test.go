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

func TestWrongFlagsOfHold(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	good := []string{"hold", "--lease", "clusters/proxy", "--address", "192.0.2.4"}
	with := func(more ...string) []string { return slices.Concat(good, more) }
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no Lease", []string{"hold", "--address", "192.0.2.4"}, `--lease "": want namespace/name`},
		{"no address", []string{"hold", "--lease", "clusters/proxy"}, "--address: want the floating address"},
		{"no name", with("--identity", ""), "--identity: want a name"},
		{"a wrong address", with("--address", "proxy"), `--address "proxy" is not an IP address`},
		{"a wrong witness", with("--witness", "dns"), `--witness "dns" is not an IP address`},
		{"no URL", with("--ready", "9901"), `--ready "9901": want a URL`},
		{"a part of a second", with("--lease-duration", "1500ms"), "--lease-duration 1.5s: want whole seconds"},
		{"an address for no time", with("--address-lifetime", "0s"), "--address-lifetime 0s: want whole seconds"},
		{"a Lease that nobody can keep", with("--renew-interval", "6s"), "--renew-interval 6s: want more than zero, and half of --lease-duration"},
		{"no patience", with("--patience", "600ms"), "--patience 600ms: want twice --probe-interval"},
		{"an address that nobody can keep", with("--address-lifetime", "1s", "--probe-interval", "700ms"), "--address-lifetime 1s: want twice --probe-interval"},
		{"no interface", with("--kubeconfig", kubeconfig, "--device", "nowhere", "--http", "127.0.0.1:0"), "finding interface nowhere"},
		{"no API server", with("--kubeconfig", "missing.yaml"), "missing.yaml"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := run(t.Context(), tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
}

// TestEveryFlagOfHoldIsInTheDocs is TestEveryFlagIsInTheDocs for its document.
func TestEveryFlagOfHoldIsInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/floating-address.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "<!-- flags: xdsd hold -->")
	if !found {
		t.Fatal("there is no table of the flags")
	}
	table, _, _ = strings.Cut(strings.TrimSpace(table), "\n\n")
	documented := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for _, flag := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(cells[1], -1) {
			documented[flag[1]] = true
			if f := newHoldCommand().Flags().Lookup(flag[1]); f == nil {
				t.Errorf("there is no flag --%s", flag[1])
			} else if d := strings.Trim(strings.TrimSpace(cells[2]), "`"); strings.HasSuffix(f.DefValue, "s") && d != f.DefValue {
				t.Errorf("the default of --%s is %s, not %s", f.Name, f.DefValue, d)
			}
		}
	}
	newHoldCommand().LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !documented[f.Name] {
			t.Errorf("--%s has no line", f.Name)
		}
	})
}
