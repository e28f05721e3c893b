package doctor_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/test/lab"
)

// BenchmarkDoctor reads and checks 1 and 100 Infras that setup deployed on a real API server.
//
// Run it with go test -run '^$' -bench Doctor ./kubectl-oooi/internal/doctor.
func BenchmarkDoctor(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cp := lab.New(b, lab.Config{Name: fmt.Sprintf("doctor-%d", n), ControllerManager: true, CRDs: cmdtest.CRDs()})
			oooi := func(out io.Writer, args ...string) int {
				var stderr bytes.Buffer
				code := cmd.Main(b.Context(), append([]string{"kubectl-oooi", "--kubeconfig", cp.Kubeconfig()}, args...), genericiooptions.IOStreams{Out: out, ErrOut: &stderr})
				if code == 1 {
					b.Fatalf("%v: %s", args, &stderr)
				}
				return code
			}
			folder := b.TempDir()
			for i := range n {
				name := fmt.Sprintf("c%d", i)
				text := lab.HostedCluster{Namespace: "default", Name: name, BaseDomain: "example.com", More: fmt.Sprintf("  infraID: c%d-x7k2p", i)}.YAML() + fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: default-%[1]s}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %[1]s, namespace: default}
spec: {config: '{"cniVersion": "0.3.1", "name": "%[1]s", "type": "bridge", "bridge": "%[1]s"}'}
`, name)
				if err := cp.ApplyYAML(b.Context(), []byte(text)); err != nil {
					b.Fatal(err)
				}
				file := filepath.Join(folder, name+".yaml")
				infra := fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %[1]s, namespace: default}
spec:
  hostedClusterRef: {name: %[1]s}
  networkConfig: {cidr: 198.18.%[2]d.0/24, gateway: 198.18.%[2]d.1, networkAttachmentDefinition: %[1]s, dnsServers: [203.0.113.53]}
  infraComponents:
    dhcp: {serverIP: 198.18.%[2]d.2, rangeStart: 198.18.%[2]d.10, rangeEnd: 198.18.%[2]d.99}
    dns: {serverIP: 198.18.%[2]d.3}
    proxy: {serverIP: 198.18.%[2]d.4}
`, name, i)
				if err := os.WriteFile(file, []byte(infra), 0o600); err != nil {
					b.Fatal(err)
				}
				oooi(io.Discard, "setup", "-f", file, "--wait=false")
			}
			for b.Loop() {
				var out bytes.Buffer
				if oooi(&out, "doctor", "-A", "-o", "json"); bytes.Count(out.Bytes(), []byte(`"kind": "Diagnosis"`)) != n {
					b.Fatalf("want %d diagnoses, got %.2000s", n, &out)
				}
			}
		})
	}
}
