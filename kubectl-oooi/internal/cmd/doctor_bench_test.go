package cmd

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/densityops/oooi/test/lab"
)

// BenchmarkDoctor checks 100 Infras, each with a HostedCluster, control-plane Services and Routes, and 20 leases. The Infras have no
// pods, which the lab's control plane cannot run, so doctor asks no daemon for its problems.
func BenchmarkDoctor(b *testing.B) {
	const infras, leases = 100, 20
	cp := lab.New(b, lab.Config{Name: "fleet"})
	lab.Must(b, cp.InstallCRDs(b.Context(), lab.Oooi, lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.KubeVirt))
	for i := range infras {
		s := lab.Site{Name: fmt.Sprintf("member-%d", i), VLAN: fmt.Sprintf("10.1.%d", i), Network: fmt.Sprintf("vlan-%d", i)}
		plane := s.ControlPlaneNamespace()
		objects := s.Namespaces() + s.HostedClusterWithHosts().YAML() + lab.BridgeNetwork("clusters", s.Network, fmt.Sprintf("br%d", i)) +
			s.Infra("spec: {networkConfig: {dnsServers: [203.0.113.53]}}") + s.ProxyServer() +
			lab.Route(plane, "oauth", "oauth."+s.Domain(), "oauth-openshift") + lab.Route(plane, "ignition-server", "ignition."+s.Domain(), "ignition-server-proxy")
		for name, port := range map[string]int{"kube-apiserver": 6443, "oauth-openshift": 6443, "ignition-server-proxy": 443, "konnectivity-server": 8091} {
			objects += lab.Service(plane, name, port)
		}
		for n := range leases {
			objects += s.Lease(s.IP(100+n), "bound", fmt.Sprintf("%s/vm-%d/vlan", plane, n), time.Now())
		}
		lab.Must(b, cp.ApplyYAML(b.Context(), []byte(objects)))
	}
	for b.Loop() {
		var out strings.Builder
		code := Main(b.Context(), []string{"kubectl-oooi", "--kubeconfig", cp.Kubeconfig(), "doctor", "-A"}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: io.Discard})
		if got := strings.Count(out.String(), "Infra clusters/member-"); code != failedCheckCode || got < infras {
			b.Fatalf("exit code %d, %d Infras: %.2000s", code, got, out.String())
		}
	}
}
