//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// documentedProxy returns the ProxyServer in docs/how-to/standalone-proxy.md.
func documentedProxy(t *testing.T) string {
	t.Helper()
	_, rest, _ := strings.Cut(string(lab.ReadFile(t, "docs/how-to/standalone-proxy.md")), "```yaml\n")
	block, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(block, "kind: ProxyServer") {
		t.Fatalf("the page does not begin with a ProxyServer: %s", block)
	}
	var text strings.Builder
	for line := range strings.Lines(block) {
		text.WriteString(strings.TrimPrefix(line, "   "))
	}
	return text.String()
}

// TestStandaloneProxy sets up proxies without an Infra: the proxy in the earlier operator's guide, whose network is a bridge
// here, and the example of the documentation at another address. A machine on the VLAN connects through them.
func TestStandaloneProxy(t *testing.T) {
	s := &site{cp: cluster(t), ca: lab.NewCA(t), dir: t.TempDir(), down: true}
	lab.Must(t, s.cp.InstallCRDs(t.Context(), lab.HyperShift, lab.OpenShiftRoute))
	const api, oauth, registry = "api.mycluster.example.com", "oauth-openshift.apps.mycluster.example.com", "registry.example.com"
	hosted := lab.HostedCluster{Namespace: "clusters", Name: "mycluster", BaseDomain: "example.com"}
	tools := lab.HostedCluster{Namespace: "test", Name: "tools"} // its control plane's namespace is renamed
	bridge := strings.NewReplacer(`"type": "macvlan",`, `"type": "bridge",`, `"master": "eth1",`, `"bridge": "`+vlan+`",`, "\n      \"mode\": \"bridge\",", "").
		Replace(string(lab.ReadFile(t, "kubectl-oooi/internal/setup/testdata/guide-network.yaml")))
	s.cp.MustApply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: hosted-clusters, labels: {pod-security.kubernetes.io/enforce: restricted}}}",
		lab.Namespaces("clusters", "clusters-mycluster", "tools"), lab.BridgeNetwork("clusters", "vlan100", vlan), bridge,
		hosted.YAML()+hosted.NetworkPolicies()+
			hosted.Backend("kube-apiserver", 6443, s.ca.TLSBackend(t, "192.0.2.86:6443", api).Addr(), "")+
			hosted.Backend("oauth-openshift", 6443, s.ca.TLSBackend(t, "192.0.2.87:6443", oauth).Addr(), "")+
			strings.ReplaceAll(tools.Backend("registry", 5000, s.ca.TLSBackend(t, "192.0.2.88:5000", registry).Addr(), ""), "test-tools", "tools"))
	t.Cleanup(func() { // other tests create a separate HostedCluster
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		lab.Report(t, s.cp.DeleteYAML(ctx, []byte(hosted.YAML())))
	})
	s.roots = lab.WriteFile(t, string(s.ca.PEM()), s.dir, "ca.crt")
	s.binary = lab.Binary(t, "kubectl-oooi")
	existing := listObjects(t, s.cp)
	var deployed []string // the arguments that select each proxy
	teardown := func() {
		for len(deployed) > 0 {
			args := append(strings.Fields(deployed[len(deployed)-1]), "--yes")
			if deployed = deployed[:len(deployed)-1]; len(deployed) == 0 {
				args = append(args, "--crds")
			}
			s.oooi(t, append([]string{"teardown"}, args...)...)
		}
	}
	t.Cleanup(teardown)
	client := &vm{Machine: lab.NewMachine(t, vlan, "02:00:00:00:50:81")}
	client.Run(t, "ip", "address", "add", "192.168.100.50/24", "dev", "eth0")
	reach := func(name string, port int, address string) {
		t.Helper()
		lab.Await(t, fmt.Sprintf("%s:%d to lead to its server", name, port), func() string {
			got, err := client.Command(t.Context(), "sh", "-c", "sleep 1 | "+clientOf(s.roots, name, address, port)).Output()
			if first, _, _ := strings.Cut(string(got), "\n"); first != name {
				return fmt.Sprintf("it leads to %q: %v", got, err)
			}
			return ""
		})
	}
	// HyperShift creates the Services with another port.
	guide := strings.NewReplacer("envoyproxy/envoy:v1.36.4", envoyImage, "targetPort: 443", "targetPort: 6443").Replace(string(lab.ReadFile(t, "api/testdata/guide/proxyserver.yaml")))
	s.setup(t, guide)
	deployed = append(deployed, "proxyserver/mycluster-proxy -n hosted-clusters")
	reach(api, 6443, "192.168.100.4")
	reach(oauth, 443, "192.168.100.4")
	lab.Await(t, "the proxy to be ready", func() string {
		out := s.oooi(t, "-n", "hosted-clusters", "status", "mycluster-proxy")
		return map[bool]string{false: out}[strings.Contains(out, "Ready:       True")]
	})
	s.oooi(t, "-n", "hosted-clusters", "doctor", "proxyserver/mycluster-proxy", "-o", "wide", "--fail-on", "warn", "--strict", "--wait", "2m")

	s.setup(t, strings.ReplaceAll(documentedProxy(t), "192.0.2.", "192.168.100."))
	deployed = append(deployed, "edge -n clusters")
	reach(registry, 5000, "192.168.100.7")

	teardown()
	s.checkNothingLeft(t, s.cp, existing)
}
