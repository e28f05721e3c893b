package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/densityops/oooi/test/lab"
)

// run runs the command with arguments and returns what it printed.
func run(ctx context.Context, args ...string) (string, error) {
	cmd := newCommand() //nolint:contextcheck // commands get theirs when they run
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

func TestWrongFlagsNameThemselves(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no socket", []string{"serve", "--socket", ""}, "--socket must not be empty"},
		{"two sources", []string{"serve", "--manifests", "a", "--kubeconfig", "b"}, "--manifests and --kubeconfig"},
		{"a bare name", []string{"serve", "--proxy-server", "demo"}, `--proxy-server "demo": want namespace/name`},
		{"too many parts", []string{"serve", "--infra", "a/b/c"}, `--infra "a/b/c": want namespace/name`},
		{"no address", []string{"serve", "--bind", "localhost"}, `--bind "localhost" is not an IP address`},
		{"no source address", []string{"serve", "--source", "192.0.2.0/24"}, `--source "192.0.2.0/24" is not an IP address`},
		{"no log level", []string{"serve", "--log-level", "loud"}, `--log-level "loud"`},
		{"no log format", []string{"serve", "--log-format", "xml"}, `--log-format "xml"`},
		{"a pod of many", []string{"serve", "--pod", "a"}, "--pod requires exactly one --proxy-server"},
		{"arguments", []string{"serve", "demo"}, `unknown command "demo"`},
		{"no kubeconfig", []string{"serve", "--kubeconfig", "missing.yaml"}, "missing.yaml"},
		{"a lease that nobody can keep", []string{"control", "--lease-duration", "0s"}, "--lease-duration 0s"},
		{"probes without end", []string{"control", "--probe-interval", "0s"}, "--probe-interval 0s"},
		{"no such policy", []string{"ingress", "--on-multiple", "Any"}, `--on-multiple "Any": want Fail, Newest or Oldest`},
		{"no such policy for none", []string{"ingress", "--on-no-match", "fail"}, `--on-no-match "fail": want Keep or Delete`},
		{"a suffix that ends no name", []string{"ingress", "--suffix", "generated-"}, `--suffix "generated-"`},
		{"a namespace of words", []string{"ingress", "--watch-namespace", "web shop"}, `--watch-namespace "web shop"`},
		{"other namespaces without aliases", []string{"ingress", "--cross-namespace", "--aliases=false"}, "--cross-namespace needs --aliases"},
		{"a lease of ingress that nobody can keep", []string{"ingress", "--lease-duration", "0s"}, "--lease-duration 0s"},
		{"ingress without an API server", []string{"ingress", "--kubeconfig", "missing.yaml"}, "missing.yaml"},
		{"control without an API server", []string{"control", "--kubeconfig", "missing.yaml"}, "missing.yaml"},
		{"probe of no address", []string{"probe", "--dns", "dns.example.com"}, "--dns:"},
		{"probe of no machine", []string{"probe", "--dhcp-mac", "one"}, "--dhcp-mac:"},
		{"probe of no interface", []string{"probe", "--dhcp"}, "--dhcp requires --device"},
		{"probe of nowhere", []string{"probe", "--tls", "192.0.2.1:443"}, `--tls "192.0.2.1:443": want NAME@ADDRESS:PORT`},
		{"bootstrap of nobody", []string{"bootstrap"}, `--proxy-server "": want namespace/name`},
		{"bootstrap in no format", []string{"bootstrap", "--proxy-server", "a/b", "-o", "toml"}, `--output "toml"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := run(t.Context(), tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestFlagsFromTheEnvironment(t *testing.T) {
	for _, tc := range []struct{ name, variable, value, args, want string }{
		{"not given", "XDSD_LOG_LEVEL", "loud", "serve", `"loud"`},
		{"given as a flag, too", "XDSD_LOG_LEVEL", "loud", "serve --log-level quiet", `"quiet"`},
		{"a list", "XDSD_PROXY_SERVER", "a/b,demo", "serve", `"demo"`},
		{"no number", "XDSD_METRICS_PORT", "many", "bootstrap --proxy-server a/b", "environment variable XDSD_METRICS_PORT"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(tc.variable, tc.value)
			_, err := run(t.Context(), strings.Fields(tc.args)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestBootstrapPrintsWhatEnvoyTakes(t *testing.T) {
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
	asJSON, err := run(t.Context(), append(args, "-o", "json")...)
	if err != nil || !json.Valid([]byte(asJSON)) {
		t.Errorf("JSON: %v", err)
	}
}

// TestEveryFlagIsExplained keeps the help whole: each setting says what it is.
func TestEveryFlagIsExplained(t *testing.T) {
	for _, cmd := range newCommand().Commands() {
		if cmd.Short == "" || cmd.Example == "" && cmd.Name() != "help" && cmd.Name() != "completion" {
			t.Errorf("%s has no summary or no example", cmd.Name())
		}
		usage := cmd.LocalFlags().FlagUsages()
		for line := range strings.Lines(usage) {
			if fields := strings.Fields(line); len(fields) < 4 {
				t.Errorf("%s: %q says too little", cmd.Name(), line)
			}
		}
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
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
	ended := make(chan error, 1)
	socket := filepath.Join(dir, "ads.sock")
	go func() {
		_, err := run(ctx, "serve", "--manifests", dir, "--socket", socket, "--http", address, "--log-level", "error")
		ended <- err
	}()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if ready(t, address) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not ready in time")
		}
		select {
		case err := <-ended:
			t.Fatalf("ended by itself: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	// A second one is refused, and takes nothing from the first.
	if _, err := run(t.Context(), "serve", "--manifests", dir, "--socket", socket, "--http", "127.0.0.1:0", "--log-level", "error"); err == nil {
		t.Error("two serve on one socket")
	}
	if !ready(t, address) {
		t.Error("not ready any more")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func ready(t *testing.T, address string) bool {
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

// TestEveryFlagIsInTheDocs holds the documents against the flags: each has a line, and
// there is none for a flag that is gone.
func TestEveryFlagIsInTheDocs(t *testing.T) {
	for name, page := range map[string]string{
		"serve": "proxy.md", "control": "proxy.md", "bootstrap": "proxy.md", "probe": "proxy.md", "ingress": "virtual-ingress.md",
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
				t.Errorf("--%s of %s has no line", f.Name, name)
			}
			delete(documented, f.Name)
		})
		for flag := range documented {
			t.Errorf("%s has no flag --%s", name, flag)
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
