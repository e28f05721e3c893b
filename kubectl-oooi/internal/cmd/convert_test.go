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

// feed runs a command line with a text at its standard input.
func feed(t *testing.T, in string, args ...string) (out, said string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code = Main(ctx, append([]string{"kubectl-oooi"}, args...), genericiooptions.IOStreams{In: strings.NewReader(in), Out: &stdout, ErrOut: &stderr})
	return stdout.String(), stderr.String(), code
}

// surroundings are what setup would find in a cluster, for the objects in convert's testdata.
const surroundings = `
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

// TestSetupTakesWhatConvertPrints pipes one into the other.
func TestSetupTakesWhatConvertPrints(t *testing.T) {
	more := filepath.Join(t.TempDir(), "more.yaml")
	if err := os.WriteFile(more, []byte(surroundings), 0o600); err != nil {
		t.Fatal(err)
	}
	legacy := "../../../api/testdata/legacy/"
	for _, tc := range []struct{ name, file, format, has string }{
		{"with children", "../convert/testdata/demo/old.yaml", "yaml", "ntp=192.168.100.5,192.168.100.6"},
		{"children alone", "../convert/testdata/children/old.yaml", "yaml", "range=198.51.100.100-198.51.100.199"},
		{"children alone, as JSON", "../convert/testdata/children/old.yaml", "json", "range=198.51.100.100-198.51.100.199"},
		{"out of a cluster", "../convert/testdata/exported/old.yaml", "yaml", "name: oooi-ingress"},
		{"a ProxyServer by itself", legacy + "proxyserver-full.yaml", "yaml", "ignition-server-proxy"},
		{"every field", legacy + "infra-full.yaml", "yaml", "ipAddressPoolRange: 198.51.100.220-198.51.100.229"},
		{"nothing but what is required", legacy + "infra-minimal.yaml", "yaml", "kind: Infra"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, err := os.ReadFile(tc.file)
			if err != nil {
				t.Fatal(err)
			}
			text = bytes.ReplaceAll(text, []byte("namespace: tenants"), []byte("namespace: clusters")) // where its hosted cluster is
			out, said, code := feed(t, string(text), "convert", "-f", "-", "-n", "clusters", "-o", tc.format)
			if code != 0 {
				t.Fatalf("convert ended with %d: %s", code, said)
			}
			for line := range strings.Lines(said) {
				if !strings.HasPrefix(line, "Warning: -: ") {
					t.Errorf("it says %s", line)
				}
			}
			if again, saidAgain, _ := feed(t, string(text), "convert", "-f", "-", "-n", "clusters", "-o", tc.format); again != out || saidAgain != said {
				t.Error("the second time it is something else")
			}
			if tc.format == "json" && !json.Valid([]byte(out)) {
				t.Errorf("it is no JSON: %s", out)
			}
			if strings.Contains(said, "metallb.loadBalancerClass: setup requires it on KubeVirt") {
				out = withClass(out)
			}
			plan, said, code := feed(t, out, "setup", "-f", "-", "-f", more, "-n", "clusters", "--dry-run=client")
			if code != 0 || !strings.Contains(plan+said, tc.has) {
				t.Errorf("setup ended with %d, has no %q, and said %s", code, tc.has, said)
			}
		})
	}
}

// withClass sets what convert has asked for.
func withClass(infra string) string {
	const apps, metallb, class = "  appsIngress:\n", "    metallb:\n", "      loadBalancerClass: metallb.io/vlan\n"
	if strings.Contains(infra, metallb) {
		return strings.Replace(infra, metallb, metallb+class, 1)
	}
	return strings.Replace(infra, apps, apps+metallb+class, 1)
}

func TestConvertRefuses(t *testing.T) {
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"convert"}, "--filename is required"},
		{[]string{"convert", "-f", "-", "-o", "table"}, `--output "table": want yaml or json`},
		{[]string{"convert", "-f", "-"}, "error: no object of the operator in the files: -f names files with its Infra, DHCPServer, DNSServer or ProxyServer, or with an Ingress"},
	} {
		out, said, code := feed(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop, namespace: web}\n", tc.args...)
		if code != 1 || out != "" || !strings.Contains(said, tc.says) {
			t.Errorf("%v ended with %d, printed %q and said %q", tc.args, code, out, said)
		}
	}
}

// TestTheDocumentedConversion runs the example of docs/reference/cli.md.
func TestTheDocumentedConversion(t *testing.T) {
	_, section, _ := strings.Cut(docs(t), "\n## convert\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```[a-z]+\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 4 {
		t.Fatalf("the section has %d blocks, want old.yaml, the command, what it says and what it prints", len(blocks))
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
	out, said, code := feed(t, "", strings.Fields(line)...)
	if code != 0 || said != blocks[2][1] || out != blocks[3][1] {
		t.Errorf("it ended with %d, said\n%s\nand printed\n%s", code, said, out)
	}
}

// TestConvertReadsFolders names a folder in place of its files.
func TestConvertReadsFolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	infra := "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: demo, namespace: clusters}\n" +
		"spec: {networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan}}\n"
	if err := os.WriteFile(filepath.Join(dir, "deep", "infra.yaml"), []byte(infra), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, said, code := call(t, "kubectl-oooi", "convert", "-f", dir, "-R"); code != 0 || !strings.Contains(out, "name: demo") {
		t.Errorf("with -R it ended with %d, said %q and printed\n%s", code, said, out)
	}
	if _, said, code := call(t, "kubectl-oooi", "convert", "-f", dir); code != 1 || !strings.Contains(said, "--recursive reads its folders too") {
		t.Errorf("without -R it ended with %d and said %q", code, said)
	}
}
