package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/test/lab"
)

// run executes xdsd with the arguments and returns its output.
func run(ctx context.Context, args ...string) (string, error) {
	cmd := newCommand() //nolint:contextcheck // ExecuteContext sets the context of commands
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

func TestInvalidFlagsAreNamed(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	hold := func(more ...string) []string {
		return append([]string{"hold", "--lease", "clusters/proxy", "--address", "192.0.2.4"}, more...)
	}
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no socket", []string{"serve", "--socket", ""}, "--socket must not be empty"},
		{"manifests and an API server", []string{"serve", "--manifests", "a", "--kubeconfig", "b"}, "--manifests and --kubeconfig"},
		{"a name without namespace", []string{"serve", "--proxy-server", "demo"}, `"demo" must be NAMESPACE/NAME`},
		{"a name of three parts", []string{"serve", "--infra", "a/b/c"}, `"a/b/c" must be NAMESPACE/NAME`},
		{"an invalid bind address", []string{"serve", "--bind", "localhost"}, `for "--bind" flag: "localhost" is not an IP address`},
		{"a prefix as source address", []string{"serve", "--source", "192.0.2.0/24"}, `for "--source" flag: "192.0.2.0/24" is not an IP address`},
		{"an invalid log level", []string{"serve", "--log-level", "loud"}, `--log-level "loud"`},
		{"an invalid log format", []string{"serve", "--log-format", "xml"}, `--log-format "xml"`},
		{"a pod of all ProxyServers", []string{"serve", "--pod", "a"}, "--pod requires exactly one --proxy-server"},
		{"arguments", []string{"serve", "demo"}, `unknown command "demo"`},
		{"a missing kubeconfig", []string{"serve", "--kubeconfig", "missing.yaml"}, "missing.yaml"},
		{"control with a lease duration of zero", []string{"control", "--lease-duration", "0s"}, "--lease-duration 0s"},
		{"control with a probe interval of zero", []string{"control", "--probe-interval", "0s"}, "--probe-interval 0s"},
		{"an invalid policy for several matches", []string{"ingress", "--on-multiple", "Any"}, `--on-multiple "Any": want Fail, Newest or Oldest`},
		{"an invalid policy for no match", []string{"ingress", "--on-no-match", "fail"}, `--on-no-match "fail": want Keep or Delete`},
		{"a suffix that no object name may have", []string{"ingress", "--suffix", "generated-"}, `--suffix "generated-"`},
		{"an invalid namespace", []string{"ingress", "--watch-namespace", "web shop"}, `--watch-namespace "web shop"`},
		{"cross-namespace without aliases", []string{"ingress", "--cross-namespace", "--aliases=false"}, "--cross-namespace requires --aliases"},
		{"ingress with a lease duration of zero", []string{"ingress", "--lease-duration", "0s"}, "--lease-duration 0s"},
		{"ingress with a missing kubeconfig", []string{"ingress", "--kubeconfig", "missing.yaml"}, "missing.yaml"},
		{"control with a missing kubeconfig", []string{"control", "--kubeconfig", "missing.yaml"}, "missing.yaml"},
		{"a page that stops Envoy", []string{"admin", "/quitquitquit"}, `page "/quitquitquit": want one of /clusters, /config_dump, /listeners, /logging, /stats`},
		{"a page of another server", []string{"admin", "http://192.0.2.1/stats"}, `want one of`},
		{"an admin interface that does not exist", []string{"admin", "/stats", "--admin-socket", "missing.sock"}, "reading /stats from Envoy: dial unix missing.sock: connect: no such file or directory"},
		{"probe without requests", []string{"probe"}, `required flag(s) "steps" not set`},
		{"probe with invalid requests", []string{"probe", "--steps", "{}"}, "--steps:"},
		{"bootstrap without a ProxyServer", []string{"bootstrap"}, `required flag(s) "proxy-server" not set`},
		{"bootstrap with an abstract socket", []string{"bootstrap", "--proxy-server", "a/b", "--socket", "@xdsd"}, `socket "@xdsd": must be an absolute path`},
		{"bootstrap with a heap that Envoy exceeds", []string{"bootstrap", "--proxy-server", "a/b", "--max-heap", "1"}, `--max-heap "1": at least 64Mi`},
		{"check of an invalid address", []string{"check", "--device", "lo", "--unused", "somewhere"}, "must be an IPv4 address"},
		{"check of an IPv6 address", []string{"check", "--device", "lo", "--unused", "::1"}, "must be an IPv4 address"},
		{"hold without a Lease", []string{"hold", "--address", "192.0.2.4"}, `required flag(s) "lease" not set`},
		{"hold without an address", []string{"hold", "--lease", "clusters/proxy"}, `required flag(s) "address" not set`},
		{"hold without an identity", hold("--identity", ""), "--identity is missing: want a name"},
		{"hold of an invalid address", hold("--address", "proxy"), `for "--address" flag: "proxy" is not an IP address`},
		{"hold with an invalid witness", hold("--witness", "dns"), `for "--witness" flag: "dns" is not an IP address`},
		{"hold with a ready check without a URL", hold("--ready", "9901"), `--ready "9901": want a URL`},
		{"limits of a network without a rate", hold("--source-network", "192.0.2.0/24=5"), `for "--source-network" flag: "192.0.2.0/24=5" must be CIDR=NUMBER/NUMBER`},
		{"limits of a network with host bits", hold("--source-network", "192.0.2.1/24=5/5"), "limits of sources: network 192.0.2.1/24: want a network without host bits"},
		{"an invalid prefix length", hold("--source-prefix-length", "33"), "limits of sources: prefix length 33: want 1 to 32"},
		{"a missing interface", hold("--kubeconfig", kubeconfig, "--device", "nowhere", "--http", "127.0.0.1:0"), "finding interface nowhere"},
		{"hold with a missing kubeconfig", hold("--kubeconfig", "missing.yaml"), "missing.yaml"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := run(t.Context(), tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one that contains %q", err, tc.want)
			}
		})
	}
}

func TestFlagsFromEnvironmentVariables(t *testing.T) {
	for _, tc := range []struct{ name, variable, value, args, want string }{
		{"not set by a flag", "XDSD_LOG_LEVEL", "loud", "serve", `"loud"`},
		{"also set by a flag", "XDSD_LOG_LEVEL", "loud", "serve --log-level quiet", `"quiet"`},
		{"a list", "XDSD_PROXY_SERVER", "a/b,demo", "serve", `"demo"`},
		{"not a number", "XDSD_METRICS_PORT", "many", "bootstrap --proxy-server a/b", "environment variable XDSD_METRICS_PORT"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(tc.variable, tc.value)
			_, err := run(t.Context(), strings.Fields(tc.args)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one that contains %q", err, tc.want)
			}
		})
	}
}

// TestEveryFlagHasAUsage checks that each command has a summary and an example, and each flag a usage text.
func TestEveryFlagHasAUsage(t *testing.T) {
	for _, cmd := range newCommand().Commands() {
		if cmd.Short == "" || cmd.Example == "" && cmd.Name() != "help" && cmd.Name() != "completion" {
			t.Errorf("%s has no summary or no example", cmd.Name())
		}
		usage := cmd.LocalFlags().FlagUsages()
		for line := range strings.Lines(usage) {
			if fields := strings.Fields(line); len(fields) < 4 {
				t.Errorf("%s: flag without a usage: %q", cmd.Name(), line)
			}
		}
	}
}

func TestServeStopsWithItsContext(t *testing.T) {
	dir := lab.TempDir(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		_, err := run(ctx, "serve", "--manifests", dir, "--socket", filepath.Join(dir, "ads.sock"), "--http", address, "--log-level", "error")
		stopped <- err
	}()
	get := func(path string) (status int, body string) {
		status, text := lab.Get(t, "http://"+address+path)
		return status, string(text)
	}
	lab.Poll(t, "xdsd to be ready", func() bool {
		select {
		case err := <-stopped:
			t.Fatalf("stopped early: %v", err)
		default:
		}
		status, _ := get("/readyz")
		return status == http.StatusOK
	})
	var report problem.Report
	if _, text := get("/problems"); json.Unmarshal([]byte(text), &report) != nil || report.Problems == nil || len(report.Problems) != 0 {
		t.Errorf("/problems: %s", text)
	}
	if _, text := get("/state"); !strings.Contains(text, `"podProblems": []`) {
		t.Errorf("/state: %s", text)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Errorf("stopped with %v", err)
	}
}

// TestFlagsAreDocumented compares the flags of each command, and their default durations, with the tables in docs/reference.
func TestFlagsAreDocumented(t *testing.T) {
	flag := regexp.MustCompile("`--([a-z0-9-]+)`")
	for name, page := range map[string]string{
		"serve": "proxy.md", "control": "proxy.md", "bootstrap": "proxy.md", "admin": "proxy.md", "check": "proxy.md", "probe": "proxy.md",
		"ingress": "virtual-ingress.md", "hold": "floating-address.md",
	} {
		_, table, found := strings.Cut(string(lab.ReadFile(t, "docs", "reference", page)), "<!-- flags: xdsd "+name+" -->")
		if !found {
			t.Fatalf("%s has no table of the flags of %s", page, name)
		}
		table, _, _ = strings.Cut(strings.TrimSpace(table), "\n\n")
		defaults := map[string]string{} // documented ones, by flag
		for line := range strings.Lines(table) {
			cells := strings.Split(line, "|")
			for _, match := range flag.FindAllStringSubmatch(cells[1], -1) {
				defaults[match[1]] = strings.Trim(strings.TrimSpace(cells[2]), "`")
			}
		}
		cmd, _, err := newCommand().Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch documented, found := defaults[f.Name]; {
			case !found && f.Name != "help":
				t.Errorf("--%s of %s is not documented", f.Name, name)
			case found && f.Value.Type() == "duration" && f.DefValue != "0s" && documented != f.DefValue:
				t.Errorf("--%s of %s has the default %s, documented as %q", f.Name, name, f.DefValue, documented)
			}
			delete(defaults, f.Name)
		})
		for flag := range defaults {
			t.Errorf("%s has no flag --%s, which is documented", name, flag)
		}
	}
}
