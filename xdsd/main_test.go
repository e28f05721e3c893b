package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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

func TestEnvoyAcceptsTheBootstrapConfiguration(t *testing.T) {
	args := []string{"bootstrap", "--proxy-server", "clusters/demo", "--node-id", "demo-0"}
	text, err := run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	arguments, err := run(t.Context(), append(args, "--args")...)
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.ValidateEnvoy(t.Context(), []byte(text), strings.Fields(arguments)...); err != nil {
		t.Error(err)
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
	socket := filepath.Join(dir, "ads.sock")
	go func() {
		_, err := run(ctx, "serve", "--manifests", dir, "--socket", socket, "--http", address, "--log-level", "error")
		stopped <- err
	}()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if isReady(t, address) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not ready in time")
		}
		select {
		case err := <-stopped:
			t.Fatalf("stopped early: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("stat of the socket: %v, %v; want mode 0600", info, err)
	}
	// A second process on the same socket fails, and the first one keeps serving.
	if _, err := run(t.Context(), "serve", "--manifests", dir, "--socket", socket, "--http", "127.0.0.1:0", "--log-level", "error"); err == nil {
		t.Error("a second process serves on the same socket")
	}
	if !isReady(t, address) {
		t.Error("not ready after a second process failed")
	}
	var report problem.Report
	if text := page(t, address, "/problems"); json.Unmarshal([]byte(text), &report) != nil || report.Problems == nil || len(report.Problems) != 0 {
		t.Errorf("/problems: %s", text)
	}
	if text := page(t, address, "/state"); !strings.Contains(text, `"podProblems": []`) {
		t.Errorf("/state: %s", text)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Errorf("stopped with %v", err)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket still exists: %v", err)
	}
}

func isReady(t *testing.T, address string) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// page returns the body of the response to a GET request.
func page(t *testing.T, address, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestFlagsAreDocumented compares the flags of each command with the tables in docs/reference.
func TestFlagsAreDocumented(t *testing.T) {
	for name, page := range map[string]string{
		"serve": "proxy.md", "control": "proxy.md", "bootstrap": "proxy.md", "admin": "proxy.md", "probe": "proxy.md", "ingress": "virtual-ingress.md",
	} {
		text, err := os.ReadFile("../docs/reference/" + page)
		if err != nil {
			t.Fatal(err)
		}
		_, table, found := strings.Cut(string(text), "<!-- flags: xdsd "+name+" -->")
		if !found {
			t.Fatalf("%s has no table of the flags of %s", page, name)
		}
		table, _, _ = strings.Cut(strings.TrimSpace(table), "\n\n")
		documented := map[string]bool{}
		for _, flag := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(firstColumn(table), -1) {
			documented[flag[1]] = true
		}
		cmd, _, err := newCommand().Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !documented[f.Name] && f.Name != "help" {
				t.Errorf("--%s of %s is not documented", f.Name, name)
			}
			delete(documented, f.Name)
		})
		for flag := range documented {
			t.Errorf("%s has no flag --%s, which is documented", name, flag)
		}
	}
}

func firstColumn(table string) string {
	var cells []string
	for line := range strings.Lines(table) {
		cells = append(cells, strings.Split(line, "|")[1])
	}
	return strings.Join(cells, "\n")
}
