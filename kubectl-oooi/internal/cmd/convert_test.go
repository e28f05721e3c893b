package cmd

import (
	"bytes"
	"context"
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

// TestSetupAcceptsObjectsOfTheEarlierOperator plans objects of the operator that oooi replaces, as they are.
func TestSetupAcceptsObjectsOfTheEarlierOperator(t *testing.T) {
	more := filepath.Join(t.TempDir(), "more.yaml")
	const clusterObjects = `
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
metadata: {name: green, namespace: clusters}
spec: {infraID: green-4hm9c, dns: {baseDomain: hosted.example.com}, platform: {type: KubeVirt}}
`
	if err := os.WriteFile(more, []byte(clusterObjects), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, file, want string }{
		{"a standalone ProxyServer", "proxyserver-full.yaml", "ignition-server-proxy"},
		{"every field", "infra-full.yaml", "ipAddressPoolRange: 198.51.100.220-198.51.100.229"},
		{"only required fields", "infra-minimal.yaml", "kind: Infra"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, err := os.ReadFile("../../../api/testdata/legacy/" + tc.file)
			if err != nil {
				t.Fatal(err)
			}
			text = bytes.ReplaceAll(text, []byte("namespace: tenants"), []byte("namespace: clusters")) // the namespace of its hosted cluster
			text = bytes.Replace(text, []byte("    metallb:\n"), []byte("    metallb:\n      loadBalancerClass: metallb.io/vlan\n"), 1)
			plan, stderr, code := runWithInput(t, string(text), "setup", "-f", "-", "-f", more, "-n", "clusters", "--dry-run=client")
			if code != 0 || !strings.Contains(plan+stderr, tc.want) {
				t.Errorf("setup exited with %d, want 0 and %q; stderr: %s", code, tc.want, stderr)
			}
		})
	}
}

func TestConvertRefuses(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"convert"}, `required flag(s) "filename" not set`},
		{[]string{"convert", "-f", "-", "-o", "table"}, `invalid argument "table" for "-o, --output" flag: want one of: yaml, json`},
		{[]string{"convert", "-f", "-"}, "error: no object to convert: the files contain no Ingress"},
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
		t.Fatalf("the section has %d blocks, want ingress.yaml, the command, stderr and stdout", len(blocks))
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("ingress.yaml", []byte(blocks[0][1]), 0o600); err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(blocks[1][1], "\n") // the first line is a comment
	line, into, _ := strings.Cut(strings.TrimSpace(command), " > ")
	line = strings.TrimPrefix(line, "kubectl oooi ")
	if into != "shop.yaml" {
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
	const ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: shop}\nspec: {defaultBackend: {service: {name: web, port: {number: 80}}}}\n"
	if err := os.WriteFile(filepath.Join(dir, "deep", "ingress.yaml"), []byte(ingress), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := runMain(t, "kubectl-oooi", "convert", "-f", dir, "-R"); code != 0 || !strings.Contains(out, "name: shop") {
		t.Errorf("with -R convert exited with %d, stderr %q, stdout\n%s", code, stderr, out)
	}
	if _, stderr, code := runMain(t, "kubectl-oooi", "convert", "-f", dir); code != 1 || !strings.Contains(stderr, "use --recursive to read subdirectories") {
		t.Errorf("without -R convert exited with %d, stderr %q", code, stderr)
	}
}
