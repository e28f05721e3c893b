package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

const edge = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: edge, namespace: NS}
spec:
  networkConfig: {serverIP: 192.0.2.7/24, gateway: 192.0.2.1, networkAttachmentName: vlan100, dns: [203.0.113.53]}
  image: example.com/oooi:1
  backends:
  - {name: registry, hostname: registry.example.com, port: 5000, targetService: registry, targetNamespace: NS-demo, targetPort: 5000}
`

const registry = `
apiVersion: v1
kind: Service
metadata: {name: registry, namespace: %s}
spec: {ports: [{port: 5000}]}
`

// serverOfInfra returns the proxy with its backend as the ProxyServer of Infra demo, and creates the backend's Service.
func serverOfInfra(s *site) string {
	s.Helper()
	s.Apply(fmt.Sprintf(registry, s.Namespace+"-demo"))
	server := strings.ReplaceAll(strings.ReplaceAll(edge, "name: edge", "name: demo"), "NS", s.Namespace)
	server = strings.ReplaceAll(server, "192.0.2.7", "192.0.2.4")
	return strings.Replace(server, "  image:", "  infraRef: {name: demo}\n  image:", 1)
}

func TestStandaloneProxy(t *testing.T) {
	s := newSite(t)
	s.Setup() // an Infra, which the standalone proxy must not change
	s.Apply(fmt.Sprintf(registry, s.Namespace+"-demo"))
	before := s.Everything()
	s.Infra = strings.ReplaceAll(edge, "NS", s.Namespace)
	stderr := s.Setup()
	for _, what := range []string{"ProxyServer NS/edge", "StatefulSet NS/edge-proxy", "Service NS/edge-proxy", "Role NS-demo/oooi-NS-edge-proxy"} {
		if what = strings.ReplaceAll(what, "NS", s.Namespace); !strings.Contains(stderr, what+" created\n") {
			t.Errorf("setup did not print %s:\n%s", what, stderr)
		}
	}
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "edge") {
			t.Errorf("setup changed an object that is not the proxy's: %s", line)
		}
	}
	s.SetupAgain()
	_, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=client", "-n", s.Namespace)
	if code != 1 || !strings.Contains(stderr, "NetworkAttachmentDefinition "+s.Namespace+"/vlan100 does not exist") {
		t.Errorf("without the network, setup exited with %d, stderr %s", code, stderr)
	}
	s.Infra += "---" + fmt.Sprintf(registry, s.Namespace+"-demo") + "---\n" + strings.ReplaceAll(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: NS}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "br-vlan100"}'}
`, "NS", s.Namespace)
	out, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=client", "-o", "yaml", "-n", s.Namespace)
	for _, want := range []string{"- --namespace\n        - " + s.Namespace + "-demo\n", "nameservers:\n        - 203.0.113.53\n", "image: example.com/oooi:1", "port: 5000"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("setup exited with %d, stderr %s; want %q in\n%s", code, stderr, want, out)
		}
	}
	if strings.Contains(out, "\nkind: Infra\n") || strings.Contains(out, "hostedcluster.densityops.com/infra: edge") || strings.Contains(out, "- --infra\n") {
		t.Errorf("the output contains an Infra, or refers to one:\n%s", out)
	}
	s.Expect(0, "teardown edge -n $NS --yes")
	s.Unchanged(before)
}

func TestStandaloneProxyIsRefused(t *testing.T) {
	s := newSite(t)
	s.Setup()
	good := strings.ReplaceAll(edge, "NS", s.Namespace)
	for _, tc := range []struct{ name, old, new, message string }{
		{"no address", "192.0.2.7/24", "edge.example.com", `spec.networkConfig.serverIP: "edge.example.com" is not an IPv4 or IPv6 address`},
		{"no network", "networkAttachmentName: vlan100, ", "", "spec.networkConfig.networkAttachmentName"},
		{"a gateway outside of the subnet", "gateway: 192.0.2.1", "gateway: 198.51.100.1", "198.51.100.1 is not an address in 192.0.2.0/24"},
		{"an Infra of the same name", "name: edge", "name: demo", "Infra " + s.Namespace + "/demo exists and its proxy has the name of this ProxyServer"},
		{"an Infra that does not exist", "  image:", "  infraRef: {name: other}\n  image:", "Infra other is not in the files"},
		{"an unknown field", "  backends:\n", "  x:\n", `unknown field "spec.x"`},
	} {
		s.Infra = strings.ReplaceAll(good, tc.old, tc.new)
		t.Log(tc.name)
		s.Refused(tc.message)
	}
}

// TestPodsMayOpenPortsOfBackends sets up a proxy with a backend on a port below 80, which is the lowest one of others.
func TestPodsMayOpenPortsOfBackends(t *testing.T) {
	s := newSite(t)
	for from, want := range map[string]string{"port: 5000, targetService": "80", "port: 53, protocol: UDP, targetService": "53"} {
		s.Infra = strings.ReplaceAll(strings.ReplaceAll(edge, "NS", s.Namespace), "port: 5000, targetService", from)
		s.Setup()
		set := &appsv1.StatefulSet{}
		s.Get("edge-proxy", set)
		if sysctls := set.Spec.Template.Spec.SecurityContext.Sysctls; len(sysctls) != 1 || sysctls[0].Value != want {
			t.Errorf("%s: sysctls %v, want %s", from, sysctls, want)
		}
	}
}

// TestProxyServerOfAnInfraIsKept sets up an Infra whose ProxyServer has backends, from both files and from each of
// them.
func TestProxyServerOfAnInfraIsKept(t *testing.T) {
	s := newSite(t)
	infra := s.Infra
	server := serverOfInfra(s)
	s.Infra = infra + "---" + server
	s.Setup()
	before := s.Everything()
	s.Infra = infra
	s.SetupAgain()
	s.Infra = server
	s.SetupAgain()
	s.Unchanged(before)
	s.Infra = strings.ReplaceAll(infra, "192.0.2.4", "192.0.2.5")
	stderr := s.Setup()
	if changed := strings.Split(strings.TrimSpace(stderr), "\n"); !slices.Contains(changed, "ProxyServer "+s.Namespace+"/demo configured") || strings.Contains(stderr, "removed") {
		t.Errorf("with another address setup printed %s", stderr)
	}
}

// TestBackendsWithProblemsAreReported sets up proxies with a backend whose Service does not exist and one on a port of the
// proxy's pod, and lets control report another problem.
func TestBackendsWithProblemsAreReported(t *testing.T) {
	s := newSite(t)
	standalone := strings.ReplaceAll(edge, "NS", s.Namespace) + "  - {name: metrics, hostname: m.example.com, port: 9901, targetService: registry, targetNamespace: " + s.Namespace + "-demo, targetPort: 5000}\n"
	beside := strings.NewReplacer("name: edge", "name: demo", "192.0.2.7", "192.0.2.4", "  image:", "  infraRef: {name: demo}\n  image:").Replace(standalone)
	for _, tc := range []struct{ name, file, object string }{{"demo", s.Infra + "---" + beside, "ProxyServer " + s.Namespace + "/demo: "}, {"edge", standalone, ""}} {
		s.Infra = tc.file
		stderr := s.Setup()
		for _, want := range []string{"ServiceNotFound: spec.backends[0] registry: ", "NameConflict: spec.backends[1] metrics: port 9901 "} {
			if !strings.Contains(stderr, "Warning: "+tc.object+want) {
				t.Errorf("%s: setup did not print %q: %s", tc.name, want, stderr)
			}
		}
		server := s.Object(v1alpha1.SchemeGroupVersion.WithKind("ProxyServer"), tc.name)
		status := fmt.Sprintf(`{"status": {"conditions": [{"type": "ConfigurationValid", "status": "False", "reason": "MultipleMatches", "message": "spec.backends[0] registry: two",
			"observedGeneration": %d, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, server.GetGeneration())
		s.Must(s.Client.Status().Patch(t.Context(), server, client.RawPatch(types.MergePatchType, []byte(status))))
		if stderr, want := s.Setup(), "Warning: ProxyServer "+s.Namespace+"/"+tc.name+": MultipleMatches: spec.backends[0] registry: two\n"; !strings.HasSuffix(stderr, want) {
			t.Errorf("%s: setup did not end with %q: %s", tc.name, want, stderr)
		}
	}
}

// TestIgnoredFieldsAreReported sets fields of the earlier operator, which existing objects may have.
func TestIgnoredFieldsAreReported(t *testing.T) {
	s := newSite(t)
	standalone := strings.Replace(strings.ReplaceAll(edge, "NS", s.Namespace), "  image:", "  managerImage: example.com/old:1\n  xdsPort: 18001\n  port: 8443\n  image:", 1)
	beside := strings.Replace(strings.Replace(standalone, "name: edge", "name: demo", 1), "  image:", "  infraRef: {name: demo}\n  image:", 1)
	infra := strings.Replace(s.Infra, "proxy: {", "proxy: {managerImage: example.com/old:1, ", 1)
	defaults := strings.NewReplacer("xdsPort: 18001", "xdsPort: 18000", "port: 8443", "port: 443", "  managerImage: example.com/old:1\n", "").Replace(standalone)
	for _, tc := range []struct {
		name, file string
		want       []string
	}{
		{"a standalone proxy", standalone, []string{
			"ProxyServer NS/edge: spec.managerImage is ignored", "ProxyServer NS/edge: spec.port is ignored", "ProxyServer NS/edge: spec.xdsPort is ignored",
		}},
		{"an Infra and its ProxyServer", infra + "---" + beside, []string{
			"Infra NS/demo: spec.infraComponents.proxy.managerImage is ignored",
			"ProxyServer NS/demo: spec.managerImage is ignored", "ProxyServer NS/demo: spec.port is ignored", "ProxyServer NS/demo: spec.xdsPort is ignored",
		}},
		{"the defaults of the earlier operator's API", defaults, nil},
	} {
		s.Infra = tc.file
		_, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=server")
		if code != 0 {
			t.Errorf("%s: setup exited with %d, stderr %s", tc.name, code, stderr)
		}
		if strings.Count(stderr, " is ignored: ") != len(tc.want) {
			t.Errorf("%s: setup did not print %d warnings: %s", tc.name, len(tc.want), stderr)
		}
		for _, want := range tc.want {
			if want = "Warning: " + strings.ReplaceAll(want, "NS", s.Namespace) + ": "; !strings.Contains(stderr, want) {
				t.Errorf("%s: want %q in %s", tc.name, want, stderr)
			}
		}
	}
}

// TestSeveralProxyServers gives an Infra a second ProxyServer, in a file and in the cluster: setup must not drop its
// routes.
func TestSeveralProxyServers(t *testing.T) {
	s := newSite(t)
	infra := s.Infra
	server := func(name string) string {
		text := strings.ReplaceAll(strings.ReplaceAll(edge, "name: edge", "name: "+name), "NS", s.Namespace)
		return strings.Replace(strings.ReplaceAll(text, "192.0.2.7", "192.0.2.4"), "  image:", "  infraRef: {name: demo}\n  image:", 1)
	}
	s.Apply(fmt.Sprintf(registry, s.Namespace+"-demo"))
	t.Log("two in the files")
	s.Infra = infra + "---" + server("demo") + "---" + server("extra")
	s.Refused("found a second ProxyServer extra; specify one ProxyServer at a time")
	t.Log("one without a reference in the files")
	s.Infra = infra + "---" + strings.ReplaceAll(edge, "NS", s.Namespace)
	s.Refused("spec.infraRef of ProxyServer edge does not refer to Infra demo of the same files")
	t.Log("one in the files and one in the cluster")
	s.Infra = infra + "---" + server("demo")
	s.Setup()
	s.Apply(server("extra"))
	const several = "refer to Infra NS/demo in spec.infraRef, and an Infra has one: move their backends to one of them, and delete the others"
	s.Refused("ProxyServers demo, extra " + strings.ReplaceAll(several, "NS", s.Namespace))
	t.Log("two in the cluster")
	s.Infra = infra
	s.Refused("ProxyServers demo, extra " + strings.ReplaceAll(several, "NS", s.Namespace))
}

// TestSecondProxyServerBesideTheRenderedOne covers an Infra whose ProxyServer setup renders: the selector of its StatefulSet, which
// cannot change, has the name.
func TestSecondProxyServerBesideTheRenderedOne(t *testing.T) {
	s := newSite(t)
	s.Setup()
	text := strings.ReplaceAll(strings.ReplaceAll(edge, "name: edge", "name: extra"), "NS", s.Namespace)
	extra := strings.Replace(strings.ReplaceAll(text, "192.0.2.7", "192.0.2.4"), "  image:", "  infraRef: {name: demo}\n  image:", 1)
	want := "ProxyServers demo, extra refer to Infra " + s.Namespace + "/demo in spec.infraRef, and an Infra has one"
	infra := s.Infra
	s.Infra += "---" + extra
	s.Refused(want)
	s.Infra = infra
	s.Apply(extra)
	s.Refused(want)
}
