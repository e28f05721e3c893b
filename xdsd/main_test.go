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

	"github.com/densityops/oooi/test/golden"

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
	lab.Must(t, os.WriteFile(kubeconfig, []byte(content), 0o600))
	golden.Errors(t, "testdata/invalid-flags.txt", func(line string) error {
		args := strings.Fields(strings.ReplaceAll(line, "KUBECONFIG", kubeconfig))
		for i, arg := range args {
			args[i] = strings.Trim(arg, `"`)
		}
		_, err := run(t.Context(), args...)
		return err
	})
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
	lab.Must(t, err)
	address := l.Addr().String()
	lab.Must(t, l.Close())
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
		lab.Must(t, err)
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
