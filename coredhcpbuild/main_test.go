package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/densityops/oooi/test/lab"
)

// run runs the command with arguments and returns its output.
func run(ctx context.Context, args ...string) (string, error) {
	cmd := newCommand() //nolint:contextcheck // commands get their context in ExecuteContext
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

func TestFlagErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no configuration", []string{"--config", "missing.yml"}, "missing.yml"},
		{"unknown log level", []string{"--log-level", "loud"}, `--log-level "loud"`},
		{"unknown log format", []string{"--log-format", "xml"}, `--log-format "xml"`},
		{"limit of 0", []string{"--max-in-flight", "0"}, "--max-in-flight must be at least 1"},
		{"arguments", []string{"demo"}, `unknown command "demo"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := run(t.Context(), tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
	t.Run("from the environment", func(t *testing.T) {
		t.Setenv("COREDHCP_LOG_LEVEL", "loud")
		t.Setenv("COREDHCP_MAX_IN_FLIGHT", "2")
		if _, err := run(t.Context()); err == nil || !strings.Contains(err.Error(), `"loud"`) {
			t.Errorf("the error is %v", err)
		}
		if _, err := run(t.Context(), "--log-level", "quiet"); err == nil || !strings.Contains(err.Error(), `"quiet"`) {
			t.Errorf("the error is %v", err)
		}
		t.Setenv("COREDHCP_MAX_IN_FLIGHT", "many")
		if _, err := run(t.Context()); err == nil || !strings.Contains(err.Error(), "environment variable COREDHCP_MAX_IN_FLIGHT") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestVersion(t *testing.T) {
	if out, err := run(t.Context(), "--version"); err != nil || !strings.Contains(out, "go1.") {
		t.Errorf("%q, %v", out, err)
	}
}

// write writes a configuration file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yml")
	lab.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestCheckNamesLineAndKey(t *testing.T) {
	const head = "server4:\n  listen: [\"%net1\"]\n  plugins:\n"
	const leases = "  - leasedb: store=bolt file=/f cidr=192.0.2.0/24 server=192.0.2.2 range=192.0.2.10-192.0.2.99\n"
	for _, tc := range []struct{ name, text, want string }{
		{"empty file", "", "file is empty; server4 is required"},
		{"not a mapping", "- a", "config.yml:1: must be a mapping with the key server4"},
		{"invalid YAML", "server4: [", "config.yml: yaml:"},
		{"an unknown server", "server5: {}", `config.yml:1: unknown key "server5"; must be server4`},
		{"DHCPv6", "server6:\n  plugins:\n  - dns: 2001:db8::53", "config.yml:1: server6: DHCPv6 is not served; remove this part"},
		{"an unknown key", "server4:\n  plugins:\n  - dns: 192.0.2.53\n  colour: blue", `config.yml:4: server4: unknown key "colour"; must be listen, interface or plugins`},
		{"no plugins", "server4:\n  listen: \"%net1\"", "config.yml:2: server4.plugins: must be a list"},
		{"plugins that are not a list", "server4: {plugins: dns}", "server4.plugins: must be a list"},
		{"listen with a mapping", "server4:\n  listen: {a: b}\n  plugins:\n  - dns: 192.0.2.53", `config.yml:2: server4.listen: must be an address such as "%net1"`},
		{"a plugin without arguments", head + "  - dns", `config.yml:4: must be one plugin, as "name: arguments"`},
		{"two plugins in one", head + "  - {dns: 192.0.2.53, router: 192.0.2.1}", "config.yml:4: must be one plugin"},
		{"an unknown plugin", head + "  - range: leases.db", `config.yml:4: unknown plugin "range"; must be one of autoconfigure, dns, file`},
		{"a list of arguments", head + "  - netmask: 255.255.255.0\n  - dns: [192.0.2.53]", "config.yml:5: dns: arguments must be one string"},
		{"a mapping of arguments", head + "  - kubevirt:\n      network: a/b", "config.yml:5: kubevirt: arguments must be one string"},
		{"arguments of kubevirt", head + "  - kubevirt: network=vlan", "config.yml:4: kubevirt: network=vlan: must be"},
		{"arguments of leasedb", head + "  - leasedb: store=paper", "config.yml:4: leasedb: store=paper"},
		{"arguments of a stock plugin", head + "  - netmask: 255.0.255.0", "config.yml:4: netmask: netmask is not valid"},
		{"several errors", head + "  - options: mtu=1\n  - router: here", "config.yml:5: router:"},
		{"kubevirt after leasedb", head + "  - leasedb: store=bolt\n  - kubevirt: network=a/b", "config.yml:5: kubevirt: must precede leasedb"},
		{"a netmask of another network", head + leases + "  - netmask: 255.255.0.0", "config.yml:5: netmask: 255.255.0.0 contradicts cidr=192.0.2.0/24 of leasedb; write 255.255.255.0"},
		{"a router in the range", head + leases + "  - router: 192.0.2.10", "config.yml:5: router: 192.0.2.10 is in a range of leasedb"},
		{"a name server in the range", head + "  - dns: 192.0.2.3 192.0.2.11\n" + leases, "config.yml:4: dns: 192.0.2.11 is in a range of leasedb"},
		{"a server of another network", head + strings.Replace(leases, "server=192.0.2.2", "server=198.51.100.2", 1), "config.yml:4: leasedb: server=198.51.100.2: not inside cidr"},
		{"an address of the wrong family", "server4:\n  listen: \"[::1]\"\n  plugins:\n  - dns: 192.0.2.53", "dhcpv4: not a valid IPv4 address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := run(t.Context(), "--check", "--config", write(t, tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
}

// TestProtectsAddressesFromOtherPlugins uses routers and DNS servers outside of the ranges, which a reservation
// could name.
func TestProtectsAddressesFromOtherPlugins(t *testing.T) {
	lab.Must(t, register())
	c, err := load(write(t, "server4:\n  plugins:\n  - router: 192.0.2.1\n  - leasedb: store=bolt file=/f cidr=192.0.2.0/24 server=192.0.2.2 range=192.0.2.10-192.0.2.99 exclude=192.0.2.53\n"+
		"  - dns: 192.0.2.53 198.51.100.53\n  - netmask: 255.255.255.0\n"))
	lab.Must(t, err)
	if got := strings.Join(c.Server4.Plugins[1].Args, " "); !strings.HasSuffix(got, "exclude=192.0.2.53 protected=192.0.2.1 protected=192.0.2.53") {
		t.Errorf("leasedb has the arguments %s", got)
	}
}

// fenced matches the configurations in a Markdown page, which can be indented.
var fenced = regexp.MustCompile("(?ms)^ *[~`]{3} ?yaml\n( *server4:\n.*?)\n *[~`]{3}$")

// TestConfigurationsInTheDocumentation checks every configuration in the documentation.
func TestConfigurationsInTheDocumentation(t *testing.T) {
	found := 0
	for _, path := range []string{"../docs/reference/dhcp.md", "../docs/how-to/plugins.md", "../plugins/kubevirt/README.md", "../plugins/options/README.md"} {
		text, err := os.ReadFile(path)
		lab.Must(t, err)
		for _, match := range fenced.FindAllSubmatch(text, -1) {
			found++
			if out, err := run(t.Context(), "--check", "--config", write(t, string(match[1]))); err != nil || !strings.Contains(out, "is valid") {
				t.Errorf("%s: %v in\n%s", path, err, match[1])
			}
		}
	}
	if found < 3 {
		t.Errorf("found %d configurations, want at least 3", found)
	}
}

// TestEveryFlagIsInTheDocs checks that the table of flags in docs/reference/dhcp.md has exactly the flags of the
// command.
func TestEveryFlagIsInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/dhcp.md")
	lab.Must(t, err)
	_, table, found := strings.Cut(string(text), "<!-- flags: coredhcp -->")
	if !found {
		t.Fatal("found no table of flags")
	}
	table, _, _ = strings.Cut(strings.TrimSpace(table), "\n\n")
	documented := map[string]bool{}
	for line := range strings.Lines(table) {
		for _, flag := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			documented[flag[1]] = true
		}
	}
	cmd := newCommand()
	cmd.InitDefaultVersionFlag()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !documented[f.Name] && f.Name != "help" {
			t.Errorf("--%s is not documented", f.Name)
		}
		delete(documented, f.Name)
	})
	for flag := range documented {
		t.Errorf("the documented flag --%s does not exist", flag)
	}
}

// TestEveryPluginIsInTheDocs checks that docs/reference/dhcp.md names every plugin.
func TestEveryPluginIsInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/dhcp.md")
	lab.Must(t, err)
	for _, p := range known() {
		if !strings.Contains(string(text), "`"+p.Name+"`") {
			t.Errorf("the plugin %s is not documented", p.Name)
		}
	}
}

func TestImportErrors(t *testing.T) {
	const head = "server4:\n  listen: \"%net1\"\n  plugins:\n"
	for _, tc := range []struct{ name, text, want string }{
		{"no kubevirt", head + "  - leasedb: store=bolt", "server4: import requires both plugins, kubevirt and leasedb"},
		{"no leasedb", head + "  - kubevirt: network=a/b", "server4: import requires both plugins"},
		{"invalid arguments", head + "  - kubevirt: network=b\n  - leasedb: store=bolt", "kubevirt: network=b: must be"},
		{"no API server", head + "  - kubevirt: network=a/b kubeconfig=/nowhere\n  - leasedb: store=bolt", "/nowhere"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := run(t.Context(), "import", "--config", write(t, tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
	if _, err := run(t.Context(), "import", "everything"); err == nil {
		t.Error("arguments are accepted")
	}
}
