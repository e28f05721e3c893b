package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// runWithInput runs a command line with a text on its standard input.
func runWithInput(t *testing.T, in string, args ...string) (out, stderr string, code int) {
	t.Helper()
	var outBuffer, errBuffer bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code = Main(ctx, append([]string{"kubectl-oooi"}, args...), genericiooptions.IOStreams{In: strings.NewReader(in), Out: &outBuffer, ErrOut: &errBuffer})
	return outBuffer.String(), errBuffer.String(), code
}

// clusterObjects are the objects that setup would read from a cluster, for the objects in the test data of convert.
const clusterObjects = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: default}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "br-vlan100"}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan-7, namespace: networks}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan-7", "type": "bridge", "bridge": "br-vlan7"}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan-7, namespace: clusters}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan-7", "type": "bridge", "bridge": "br-vlan7"}'}
---
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: demo, namespace: clusters}
spec: {infraID: demo-x7k2p, dns: {baseDomain: example.com}, platform: {type: KubeVirt}}
---
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: green, namespace: clusters}
spec: {infraID: green-4hm9c, dns: {baseDomain: hosted.example.com}, platform: {type: KubeVirt}}
`

// TestSetupAcceptsConvertedObjects pipes the output of convert into setup.
func TestSetupAcceptsConvertedObjects(t *testing.T) {
	more := filepath.Join(t.TempDir(), "more.yaml")
	if err := os.WriteFile(more, []byte(clusterObjects), 0o600); err != nil {
		t.Fatal(err)
	}
	legacy := "../../../api/testdata/legacy/"
	for _, tc := range []struct{ name, file, format, want string }{
		{"with children", "../convert/testdata/demo/old.yaml", "yaml", "ntp=192.168.100.5,192.168.100.6"},
		{"without an Infra", "../convert/testdata/derived/old.yaml", "yaml", "range=198.51.100.100-198.51.100.199"},
		{"without an Infra, as JSON", "../convert/testdata/derived/old.yaml", "json", "range=198.51.100.100-198.51.100.199"},
		{"exported from a cluster", "../convert/testdata/exported/old.yaml", "yaml", "name: oooi-ingress"},
		{"a standalone ProxyServer", legacy + "proxyserver-full.yaml", "yaml", "ignition-server-proxy"},
		{"every field", legacy + "infra-full.yaml", "yaml", "ipAddressPoolRange: 198.51.100.220-198.51.100.229"},
		{"only required fields", legacy + "infra-minimal.yaml", "yaml", "kind: Infra"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, err := os.ReadFile(tc.file)
			if err != nil {
				t.Fatal(err)
			}
			text = bytes.ReplaceAll(text, []byte("namespace: tenants"), []byte("namespace: clusters")) // the namespace of its hosted cluster
			out, stderr, code := runWithInput(t, string(text), "convert", "-f", "-", "-n", "clusters", "-o", tc.format)
			if code != 0 {
				t.Fatalf("convert exited with %d: %s", code, stderr)
			}
			for line := range strings.Lines(stderr) {
				if !strings.HasPrefix(line, "Warning: -: ") {
					t.Errorf("stderr has a line that is no warning: %s", line)
				}
			}
			if again, stderrAgain, _ := runWithInput(t, string(text), "convert", "-f", "-", "-n", "clusters", "-o", tc.format); again != out || stderrAgain != stderr {
				t.Error("a second conversion differs from the first")
			}
			if tc.format == "json" && !json.Valid([]byte(out)) {
				t.Errorf("invalid JSON: %s", out)
			}
			if strings.Contains(stderr, "metallb.loadBalancerClass: setup requires it on KubeVirt") {
				out = withLoadBalancerClass(out)
			}
			plan, stderr, code := runWithInput(t, out, "setup", "-f", "-", "-f", more, "-n", "clusters", "--dry-run=client")
			if code != 0 || !strings.Contains(plan+stderr, tc.want) {
				t.Errorf("setup exited with %d, want 0 and %q; stderr: %s", code, tc.want, stderr)
			}
		})
	}
}

// withLoadBalancerClass sets the field that convert warns about.
func withLoadBalancerClass(infra string) string {
	const apps, metallb, class = "  appsIngress:\n", "    metallb:\n", "      loadBalancerClass: metallb.io/vlan\n"
	if strings.Contains(infra, metallb) {
		return strings.Replace(infra, metallb, metallb+class, 1)
	}
	return strings.Replace(infra, apps, apps+metallb+class, 1)
}

func TestConvertRefuses(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"convert"}, "--filename is required"},
		{[]string{"convert", "-f", "-", "-o", "table"}, `--output "table": want yaml or json`},
		{[]string{"convert", "-f", "-"}, "error: no object to convert: the files contain no Infra, DHCPServer, DNSServer, ProxyServer or Ingress"},
	} {
		out, stderr, code := runWithInput(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop, namespace: web}\n", tc.args...)
		if code != 1 || out != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%v exited with %d, stdout %q, stderr %q", tc.args, code, out, stderr)
		}
	}
}

// TestDocumentedConversion runs the example of docs/reference/cli.md.
func TestDocumentedConversion(t *testing.T) {
	_, section, _ := strings.Cut(docs(t), "\n## convert\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```[a-z]+\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 4 {
		t.Fatalf("the section has %d blocks, want old.yaml, the command, stderr and stdout", len(blocks))
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("old.yaml", []byte(blocks[0][1]), 0o600); err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(blocks[1][1], "\n") // the first line is a comment
	line, into, _ := strings.Cut(strings.TrimSpace(command), " > ")
	line = strings.TrimPrefix(line, "kubectl oooi ")
	if into != "infra.yaml" {
		t.Errorf("the command is %s", blocks[1][1])
	}
	out, stderr, code := runWithInput(t, "", strings.Fields(line)...)
	if code != 0 || stderr != blocks[2][1] || out != blocks[3][1] {
		t.Errorf("convert exited with %d, stderr\n%s\nstdout\n%s", code, stderr, out)
	}
}

// TestConvertReadsDirectories passes a directory to --filename.
func TestConvertReadsDirectories(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	infra := "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: demo, namespace: clusters}\n" +
		"spec: {networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan}}\n"
	if err := os.WriteFile(filepath.Join(dir, "deep", "infra.yaml"), []byte(infra), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := runMain(t, "kubectl-oooi", "convert", "-f", dir, "-R"); code != 0 || !strings.Contains(out, "name: demo") {
		t.Errorf("with -R convert exited with %d, stderr %q, stdout\n%s", code, stderr, out)
	}
	if _, stderr, code := runMain(t, "kubectl-oooi", "convert", "-f", dir); code != 1 || !strings.Contains(stderr, "use --recursive to read subdirectories") {
		t.Errorf("without -R convert exited with %d, stderr %q", code, stderr)
	}
}
