package cmd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// runMain runs a command line as main does. args[0] is the name of the program.
func runMain(t *testing.T, args ...string) (out, stderr string, code int) {
	t.Helper()
	var outBuffer, errBuffer bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code = Main(ctx, args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &outBuffer, ErrOut: &errBuffer})
	return outBuffer.String(), errBuffer.String(), code
}

// TestReadCommands runs the read-only commands on the objects of testdata/site.yaml, in a separate API server
// because -A lists the objects of all tests.
func TestReadCommands(t *testing.T) {
	cp := lab.New(t, lab.Config{Name: "reading"})
	expect := func(line, want string, wantCode int) {
		t.Helper()
		if _, stderr, code := runMain(t, append([]string{"kubectl-oooi", "--kubeconfig", cp.Kubeconfig()}, strings.Fields(line)...)...); code != wantCode || !strings.Contains(stderr, want) {
			t.Errorf("%s exited with %d, stderr %q; want %d and %q", line, code, stderr, wantCode, want)
		}
	}
	for _, line := range []string{"status", "status demo", "resolve api.example.com", "routes", "leases demo"} {
		expect(line, "is this the management cluster?", 1)
	}
	lab.Must(t, cp.InstallCRDs(t.Context(), lab.Oooi))
	expect("status", "Warning: the cluster does not serve HostedClusters: HyperShift is not installed\nNo resources found in default namespace.\n", 0)
	expect("resolve api.example.com", "Warning: the cluster does not serve HostedClusters", 0)
	lab.Must(t, cp.InstallCRDs(t.Context(), lab.HyperShift, lab.OpenShiftRoute))
	applyFile(t, "site.yaml", cp.ApplyYAML)
	applyFile(t, "site-status.yaml", cp.ApplyStatusYAML)

	t.Run("transcripts", func(t *testing.T) { transcripts(t, cp.Kubeconfig()) })
	t.Run("envoy errors", func(t *testing.T) { envoyErrors(t, cp) })
	t.Run("commands of the earlier operator", func(t *testing.T) { earlierCommands(t, cp) })
	cmdtest.Transcripts(t, "testdata/reading", func(t *testing.T) (*cmdtest.Site, map[string]cmdtest.Command) {
		s := cmdtest.NewEmpty(t, cp, "clusters", Main)
		s.Infra = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop, namespace: web}}" // on standard input
		return s, map[string]cmdtest.Command{
			// complete runs a command line as kubectl runs kubectl_complete-oooi.
			"complete": func(argument string) []string {
				words := strings.Fields(strings.ReplaceAll(argument, `""`, "\x00"))
				for i := range words {
					words[i] = strings.Trim(words[i], "\x00")
				}
				out, stderr, code := runMain(t, append([]string{"/usr/local/bin/kubectl_complete-oooi", "--kubeconfig", cp.Kubeconfig()}, words...)...)
				if code != 0 {
					t.Errorf("complete %s exited with %d, stderr %s", argument, code, stderr)
				}
				return strings.Fields(out)
			},
		}
	})
	t.Run("verbosity", func(t *testing.T) { verbosity(t, cp.Kubeconfig()) })
	t.Run("hung etcd", func(t *testing.T) { hungEtcd(t, cp) })
}

func applyFile(t *testing.T, file string, apply func(context.Context, []byte) error) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	lab.Must(t, err)
	lab.Must(t, apply(t.Context(), data))
}

// ages matches the cells of the column AGE of a table, including the title.
var ages = regexp.MustCompile(`(AGE|\b(\d+m)?\d+s) *( {3}|\n)`)

// normalizeAge replaces an age by 7s, and pads the title to the same width.
func normalizeAge(cell string) string {
	text := "7s"
	if strings.HasPrefix(cell, "AGE") {
		text = "AGE"
	}
	if strings.HasSuffix(cell, "\n") {
		return text + "\n"
	}
	return fmt.Sprintf("%-6s", text)
}

// transcripts compares the outputs with golden files and with docs/reference/cli.md, which must not show other outputs.
func transcripts(t *testing.T, kubeconfig string) {
	recordedPages(t)
	documented := documentedTranscripts(t)
	for _, tc := range []struct{ golden, line string }{
		{"status", "status -n clusters"},
		{"status-demo", "status demo -n clusters"},
		{"status-wide", "status -A -o wide"},
		{"status-yaml", "status demo -n clusters -o yaml"},
		{"resolve", "resolve api.demo.example.com"},
		{"resolve-apps", "resolve console-openshift-console.apps.demo.example.com --source 192.168.50.10"},
		{"resolve-unknown", "resolve typo.demo.example.com --vlan clusters/vlan50"},
		{"resolve-yaml", "resolve api.demo.example.com --view pod -o yaml"},
		{"routes", "routes demo -n clusters"},
		{"routes-wide", "routes -A -o wide"},
		{"routes-yaml", "routes demo -n clusters -o yaml"},
		{"envoy-listeners", "envoy listeners demo -n clusters"},
		{"envoy-listeners-wide", "envoy listeners -n clusters --port 8091 -o wide"},
		{"envoy-listeners-yaml", "envoy listeners demo -n clusters --port 8091 -o yaml"},
		{"envoy-routes", "envoy routes demo -n clusters --name apps"},
		{"envoy-routes-wide", "envoy routes proxyserver/demo -n clusters -o wide"},
		{"envoy-clusters", "envoy clusters demo -n clusters"},
		{"envoy-clusters-wide", "envoy clusters demo -n clusters --name kube-apiserver -o wide"},
		{"envoy-clusters-yaml", "envoy clusters demo -n clusters --name kube-apiserver -o yaml"},
		{"envoy-stats", "envoy stats demo -n clusters --filter ^listener.*downstream_cx_active"},
		{"envoy-log-level", "envoy log-level demo -n clusters --level info"},
		{"leases", "leases demo -n clusters"},
		{"leases-wide", "leases -A -o wide"},
		{"leases-yaml", "leases demo -n clusters -o yaml"},
	} {
		out, stderr, code := runMain(t, append([]string{"kubectl-oooi", "--kubeconfig", kubeconfig}, strings.Fields(tc.line)...)...)
		if code != 0 {
			t.Errorf("%s exited with %d: %s", tc.line, code, stderr)
		}
		out = ages.ReplaceAllStringFunc(out, normalizeAge)
		golden.Check(t, filepath.Join("testdata", tc.golden+".golden"), out)
		if text, ok := documented[tc.line]; ok && !matchesTranscript(text, out) {
			t.Errorf("docs/reference/cli.md shows for %s\n%s\nbut the output is\n%s", tc.line, text, out)
		}
		delete(documented, tc.line)
	}
	for line := range documented {
		t.Errorf("docs/reference/cli.md shows 'kubectl oooi %s', which no test runs", line)
	}
}

// verbosity checks that -v logs requests in kubectl's format, and only for the command that has the flag.
func verbosity(t *testing.T, kubeconfig string) {
	for _, tc := range []struct {
		flag   string
		logged bool
	}{{"-v=0", false}, {"-v=6", true}, {"--v=6", true}, {"-v=1", false}} {
		_, stderr, code := runMain(t, "kubectl-oooi", "--kubeconfig", kubeconfig, "status", "-n", "clusters", tc.flag)
		if code != 0 || strings.Contains(stderr, `verb="GET"`) != tc.logged || strings.Count(stderr, "hostedclusters?limit") > 1 {
			t.Errorf("%s exited with %d, stderr %s", tc.flag, code, stderr)
		}
	}
	if _, stderr, _ := runMain(t, "kubectl-oooi", "--kubeconfig", kubeconfig, "status", "-n", "clusters"); stderr != "" {
		t.Errorf("requests are logged without -v: %s", stderr)
	}
}
