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

// TestReadCommands runs the read-only commands on the objects of testdata/site.yaml, in an API server of its own
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
	if err := cp.InstallCRDs(t.Context(), lab.Oooi); err != nil {
		t.Fatal(err)
	}
	expect("status", "Warning: the cluster does not serve HostedClusters: HyperShift is not installed\nNo resources found in default namespace.\n", 0)
	expect("resolve api.example.com", "Warning: the cluster does not serve HostedClusters", 0)
	if err := cp.InstallCRDs(t.Context(), lab.HyperShift, lab.OpenShiftRoute); err != nil {
		t.Fatal(err)
	}
	applyFile(t, "site.yaml", cp.ApplyYAML)
	applyFile(t, "site-status.yaml", cp.ApplyStatusYAML)

	t.Run("transcripts", func(t *testing.T) { transcripts(t, cp.Kubeconfig()) })
	t.Run("envoy errors", func(t *testing.T) { envoyErrors(t, cp) })
	t.Run("formats", func(t *testing.T) { formats(t, cp.Kubeconfig()) })
	t.Run("refusals", func(t *testing.T) { refusals(t, cp.Kubeconfig()) })
	t.Run("commands of the earlier operator", func(t *testing.T) { earlierCommands(t, cp) })
	t.Run("completion", func(t *testing.T) { completions(t, cp.Kubeconfig()) })
	t.Run("narrow rights", func(t *testing.T) { narrowRights(t, cp) })
	t.Run("verbosity", func(t *testing.T) { verbosity(t, cp.Kubeconfig()) })
	t.Run("hung etcd", func(t *testing.T) { hungEtcd(t, cp) })
}

func applyFile(t *testing.T, file string, apply func(context.Context, []byte) error) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := apply(t.Context(), data); err != nil {
		t.Fatal(err)
	}
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

func formats(t *testing.T, kubeconfig string) {
	for _, tc := range []struct{ line, out string }{
		{"status -n clusters -o name", "infra.hostedcluster.densityops.com/demo\ninfra.hostedcluster.densityops.com/lab\n"},
		{"status demo -n clusters -o jsonpath={.apiVersion}/{.kind}:{.ready.reason}", "report.densityops.com/v1alpha1/InfraStatus:ListenerNotReady"},
		{"status -n clusters -o go-template={{range.items}}{{.metadata.name}};{{end}}", "demo;lab;"},
		{"status -n clusters --template={{.kind}}", "InfraStatusList"},
		{"status infra/demo -n clusters -o jsonpath={.metadata.name}", "demo"},
		{"status infras.hostedcluster.densityops.com/demo -n clusters -o jsonpath={.metadata.name}", "demo"},
		{"routes infra/demo -n clusters -o name", "proxyserver.hostedcluster.densityops.com/demo\n"},
		{"routes proxyserver.hostedcluster.densityops.com/demo -n clusters -o name", "proxyserver.hostedcluster.densityops.com/demo\n"},
		{"leases infra/lab -n clusters -o jsonpath={.items}", "[]"},
		{"status lab -n clusters -o wide --no-headers", "lab   <none>   Disabled   Unknown   Unknown   Disabled   Unknown   NotObserved   7s    <none>   192.168.60.3   192.168.60.4   clusters/vlan60   192.168.60.0/24\n"},
		{"resolve api.demo.example.com --view vlan -o jsonpath={.views[*].result}", "Answered PassedOn"},
		{"resolve api.demo.example.com --source 192.168.60.9 -o jsonpath={.views[*].vlan}", "clusters/vlan60"},
		{"resolve api.demo.example.com --source 10.0.0.1 -o jsonpath={.views[*].view}", "pod"},
		{"resolve api.demo.example.com -n clusters --vlan vlan50 -o jsonpath={.views[*].addresses}", `["192.168.50.4"]`},
		{"routes demo -n clusters -o name", "proxyserver.hostedcluster.densityops.com/demo\n"},
		{"leases demo -n clusters -o jsonpath={.items[*].address}", "192.168.50.10 192.168.50.11 192.168.50.12"},
		{"leases lab -n clusters -o jsonpath={.items}", "[]"},
	} {
		out, stderr, code := runMain(t, append([]string{"kubectl-oooi", "--kubeconfig", kubeconfig}, strings.Fields(tc.line)...)...)
		if out = ages.ReplaceAllStringFunc(out, normalizeAge); code != 0 || out != tc.out {
			t.Errorf("%s exited with %d, stderr %q, stdout\n%q, want\n%q", tc.line, code, stderr, out, tc.out)
		}
	}
}

// refusals runs command lines that fail or find nothing: they write only to standard error.
func refusals(t *testing.T, kubeconfig string) {
	for _, tc := range []struct {
		line, want string
		code       int
	}{
		{"status", "No resources found in default namespace.\n", 0},
		{"leases", "No resources found in default namespace.\n", 0},
		{"routes", "No resources found in default namespace.\n", 0},
		{"leases lab -n clusters", "No resources found in clusters namespace.\n", 0},
		{"status nobody -n clusters", `"nobody" not found`, 1},
		{"leases nobody -n clusters", `"nobody" not found`, 1},
		{"routes nobody -n clusters", "no proxy found for Infra or ProxyServer clusters/nobody", 1},
		{"routes lab -n clusters", "no ProxyServer refers to Infra clusters/lab", 1},
		{"status demo -A", "specify the namespace of demo with --namespace", 1},
		{"status pod/demo -n clusters", `"pod/demo": want NAME or infra/NAME`, 1},
		{"status clusters/demo", `"clusters/demo": want NAME or infra/NAME or proxyserver/NAME; --namespace selects the namespace`, 1},
		{"routes infra/ -n clusters", `"infra/": want NAME or infra/NAME or proxyserver/NAME`, 1},
		{"setup clusters/demo", `"clusters/demo": want NAME or infra/NAME`, 1},
		{"status -o xml", `--output "xml": want one of`, 1},
		{"resolve api.demo.example.com -o wide", `--output "wide": want one of`, 1},
		{"resolve api.demo.example.com --view node", `invalid argument "node" for "--view" flag: want one of: pod, vlan`, 1},
		{"resolve api.demo.example.com --view pod --vlan a/b", "--vlan a/b: the pod view has no VLAN", 1},
		{"resolve api.demo.example.com --vlan a/b", "--vlan a/b: no Infra uses this network; the networks are: clusters/vlan50, clusters/vlan60", 1},
		{"resolve api.demo.example.com --source here", `invalid argument "here" for "--source" flag`, 1},
		{"resolve api.demo.example.com --source 10.0.0.1 --view pod", "mutually exclusive with --view and --vlan: the source address 10.0.0.1 selects the view", 1},
		{"resolve https://api.demo.example.com", "want a host name", 1},
		{"resolve api.demo.example.com --manifests nowhere", "--manifests nowhere: ", 1},
	} {
		out, stderr, code := runMain(t, append([]string{"kubectl-oooi", "--kubeconfig", kubeconfig}, strings.Fields(tc.line)...)...)
		if code != tc.code || out != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s exited with %d, stdout %q, stderr %q; want %d and %q", tc.line, code, out, stderr, tc.code, tc.want)
		}
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

// completions runs command lines as kubectl runs kubectl_complete-oooi.
func completions(t *testing.T, kubeconfig string) {
	for _, tc := range []struct {
		words []string
		want  string
	}{
		{[]string{"status", "-n", "clusters", "de"}, "demo\n:4\n"},
		{[]string{"leases", "-n", "clusters", ""}, "demo\nlab\n:4\n"},
		{[]string{"routes", "-n", "clusters", ""}, "demo\nlab\n:4\n"},
		{[]string{"status", "-n", "clusters", "demo", ""}, ":4\n"},
		{[]string{"status", "--server", "https://127.0.0.1:1", ""}, ":4\n"},
		{[]string{"resolve", "--view", ""}, "pod\nvlan\n:4\n"},
		{[]string{"teardown", "-n", "clusters", ""}, "demo\nlab\n:4\n"},
		{[]string{"setup", "-n", "clusters", "l"}, "lab\n:4\n"},
		{[]string{"diff", "-n", "clusters", "l"}, "lab\n:4\n"},
		{[]string{"status", "-n", "cl"}, "clusters\nclusters-demo\n:4\n"},
		{[]string{"status", "--namespace", "clusters-"}, "clusters-demo\n:4\n"},
		{[]string{"setup", "--dry-run", ""}, "none\nclient\nserver\n:4\n"},
		{[]string{"teardown", "demo", "--dry-run="}, "none\nclient\nserver\n:4\n"},
		{[]string{"setup", "--openshift", ""}, "auto\ntrue\nfalse\n:4\n"},
		{[]string{"diff", "--openshift", ""}, "auto\ntrue\nfalse\n:4\n"},
		{[]string{"setup", "--cluster-dns", "p"}, "print\npatch\n:4\n"},
		{[]string{"setup", "--output", ""}, "yaml\n:4\n"},
		{[]string{"doctor", "--fail-on", ""}, "fail\nwarn\nnever\n:4\n"},
		{[]string{"doctor", "--only", "oooi-hc-00"}, "OOOI-HC-001\nOOOI-HC-002\nOOOI-HC-003\nOOOI-HC-004\n:4\n"},
	} {
		out, stderr, code := runMain(t, append([]string{"/usr/local/bin/kubectl_complete-oooi", "--kubeconfig", kubeconfig}, tc.words...)...)
		if code != 0 || out != tc.want {
			t.Errorf("%q exited with %d, stderr %q, stdout\n%s\nwant\n%s", tc.words, code, stderr, out, tc.want)
		}
	}
}

// narrowRights runs commands as a user who may only read the Infras, ProxyServers and HostedClusters of one namespace.
func narrowRights(t *testing.T, cp *lab.ControlPlane) {
	if err := cp.ApplyYAML(t.Context(), []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: clusters}
rules:
- {apiGroups: [hostedcluster.densityops.com], resources: [infras, proxyservers], verbs: [get, list]}
- {apiGroups: [hypershift.openshift.io], resources: [hostedclusters], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: clusters}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: narrow}]
`)); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := cp.UserKubeconfig("narrow")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		line string
		code int
		out  string
		want []string
	}{
		// The user may read all Infras of the namespace, but not the HostedClusters of others.
		{"status -n clusters", 0, "clusters/demo", []string{"Warning: listing HostedClusters in all namespaces", "reading only namespaces clusters"}},
		{"status demo -n clusters", 1, "ConfigurationValid", []string{"error: listing Pods in namespace clusters", "forbidden"}},
		{"status -A", 1, "", []string{"error: listing Infras in all namespaces", "forbidden"}},
		{"leases demo -n clusters", 1, "", []string{"error: listing Leases in namespace clusters", "forbidden"}},
		{"routes demo -n clusters", 1, "", []string{"Warning: listing Infras in all namespaces", "error: listing Services in namespace clusters: ", "forbidden"}},
	} {
		out, stderr, code := runMain(t, append([]string{"kubectl-oooi", "--kubeconfig", kubeconfig}, strings.Fields(tc.line)...)...)
		if code != tc.code || !strings.Contains(out, tc.out) || tc.out == "" && out != "" {
			t.Errorf("%s exited with %d, stdout\n%s", tc.line, code, out)
		}
		for _, want := range tc.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: stderr\n%s\nwant %q", tc.line, stderr, want)
			}
		}
	}
}
