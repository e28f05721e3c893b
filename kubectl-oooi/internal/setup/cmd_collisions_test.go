package setup_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// TestSetupRefusesCollisions has one address that the model refuses (internal/model tests all of them), and what only setup
// finds.
func TestSetupRefusesCollisions(t *testing.T) {
	s := newSite(t)
	good := s.Infra
	for _, tc := range []struct{ name, old, new, message string }{
		{"network address", "dns: {serverIP: 192.0.2.3}", "dns: {serverIP: 192.0.2.0}", "error: InvalidAddress: spec.infraComponents.dns: 192.0.2.0 is the network address of 192.0.2.0/24: use another address"},
		{"apps ingress on KubeVirt without a load balancer class", "  infraComponents:", "  appsIngress: {enabled: true, metallb: {install: true}}\n  infraComponents:", "error: ControllerConflict: spec.appsIngress: on KubeVirt"},
		{"our own DNS as upstream resolver", "203.0.113.53", "192.0.2.3", "spec.networkConfig.dnsServers: 192.0.2.3 is spec.infraComponents.dns: name a resolver that is not part of this Infra"},
		{"an unknown hosted cluster", "hostedClusterRef: {name: demo", "hostedClusterRef: {name: nope", "error: HostedClusterNotFound: HostedCluster " + s.Namespace + "/nope does not exist; correct spec.hostedClusterRef, create the HostedCluster first, or set spec.infraComponents.dns.clusterName"},
		{
			"a hosted cluster in the Infra's namespace with another namespace", "{name: demo, namespace: " + s.Namespace + "}\n  networkConfig", "{name: demo, namespace: clusters}\n  networkConfig",
			"error: HostedClusterNotFound: HostedCluster clusters/demo does not exist; HostedCluster " + s.Namespace + "/demo does: set spec.hostedClusterRef.namespace to " + s.Namespace,
		},
	} {
		s.Infra = strings.ReplaceAll(good, tc.old, tc.new)
		if s.Infra == good {
			t.Fatalf("%s: nothing was changed", tc.name)
		}
		t.Log(tc.name)
		s.Refused(tc.message)
		if out, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=server"); code != 1 || !strings.Contains(stderr, tc.message) || out != "" {
			t.Errorf("%s: a dry run exited with %d, stderr %s, stdout %s", tc.name, code, stderr, out)
		}
	}
	s.Infra = good
	s.Refused(fmt.Sprintf(`error: the namespace from the provided object %q does not match the namespace "elsewhere": Infra demo. You must pass '--namespace=%[1]s' to perform this operation`, s.Namespace), "-n", "elsewhere")
	if out, stderr, code := s.Run("setup", "demo", "-n", s.Namespace, "--hosted-cluster", "nope", "--network", "vlan100", "--cidr", "192.0.2.0/24", "--gateway", "192.0.2.1"); code != 1 || out != "" || !strings.Contains(stderr, "error: HostedClusterNotFound: HostedCluster "+s.Namespace+"/nope does not exist; correct spec.hostedClusterRef") {
		t.Errorf("an unknown --hosted-cluster: setup exited with %d, stderr %s, stdout %s", code, stderr, out)
	}
}

// TestSetupRefusesNewNameConflicts changes backends of a ProxyServer that exists. A conflict from before is only a
// warning, because nothing that works depends on it.
func TestSetupRefusesNewNameConflicts(t *testing.T) {
	s := newSite(t)
	infra := s.Infra
	setup := func(first, second string, port int) string {
		t.Helper()
		s.Infra = fmt.Sprintf(`%s---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: demo, namespace: %s}
spec:
  infraRef: {name: demo}
  networkConfig: {serverIP: 192.0.2.4, networkAttachmentName: vlan100}
  backends:
  - {name: one, hostname: %s, port: %d, targetService: one, targetPort: 443, targetNamespace: %[2]s}
  - {name: two, hostname: %[5]s, port: 443, targetService: two, targetPort: 443, targetNamespace: %[2]s}
`, strings.TrimSuffix(infra, "---\n"), s.Namespace, first, port, second)
		_, stderr, code := s.Run("setup", "-f", "FILE", "--wait=false")
		return fmt.Sprintf("exit code %d: %s", code, stderr)
	}
	for _, tc := range []struct {
		name, first, second string
		port                int
		want                string
	}{
		{"first setup", "one.example.com", "two.example.com", 443, "exit code 0"},
		{"a name of another backend", "one.example.com, alternateHostnames: [two.example.com]", "two.example.com", 443, "is already routed to"},
		{"a port of the pod", "one.example.com", "two.example.com", 9901, "port 9901 is used in the proxy's own pod"},
		{"another name", "three.example.com", "two.example.com", 443, "exit code 0"},
	} {
		if out := setup(tc.first, tc.second, tc.port); !strings.Contains(out, tc.want) || strings.HasPrefix(out, "exit code 0") != (tc.want == "exit code 0") {
			t.Errorf("%s: want %q, got %s", tc.name, tc.want, out)
		}
	}
	server := s.Object(read.ProxyServerKind, "demo")
	s.Must(s.Client.Delete(s.Context(), server))
	for range 2 {
		if out := setup("one.example.com", "two.example.com", 9901); !strings.HasPrefix(out, "exit code 0") || !strings.Contains(out, "Warning: ProxyServer "+s.Namespace+"/demo: NameConflict: ") {
			t.Errorf("with a conflict from before, want a warning, got %s", out)
		}
	}
}

func TestSetupRefusesAddressesOfProxyServers(t *testing.T) {
	s := newSite(t)
	s.Setup()
	infra := s.Infra
	proxy := func(name, address string) string {
		return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: %s, namespace: %s}
spec:
  networkConfig: {serverIP: %s/24, networkAttachmentName: vlan100, gateway: 192.0.2.1}
  backends: [{name: registry, hostname: registry.example.com, port: 443, targetService: registry, targetPort: 5000, targetNamespace: %[2]s}]
`, name, s.Namespace, address)
	}
	s.Infra = proxy("edge", "192.0.2.3")
	s.Refused("error: AddressConflict: 192.0.2.3 is also an address of Infra " + s.Namespace + "/demo on the same VLAN")
	s.Infra = proxy("edge", "192.0.2.10")
	s.Refused("error: AddressConflict: 192.0.2.10 lies in the range 192.0.2.10-192.0.2.99 of Infra " + s.Namespace + "/demo on the same VLAN")
	s.Infra = proxy("edge", "192.0.2.200")
	s.Setup()
	s.Infra = proxy("other", "192.0.2.200")
	s.Refused("error: AddressConflict: 192.0.2.200 is also an address of ProxyServer " + s.Namespace + "/edge on the same VLAN")
	s.Infra = strings.Replace(infra, "192.0.2.3", "192.0.2.200", 1)
	s.Refused("error: AddressConflict: 192.0.2.200 is also an address of ProxyServer " + s.Namespace + "/edge on the same VLAN")
}

func TestSetupRefusesToMoveAnAddressBetweenComponents(t *testing.T) {
	s := newSite(t)
	s.Setup()
	good := s.Infra
	const message = "StatefulSet demo-dns uses 192.0.2.3 until it is replaced, and StatefulSet demo-proxy would start with the same address before that; assign a free address to demo-dns"
	s.Infra = strings.NewReplacer("192.0.2.3}", "192.0.2.4}", "192.0.2.4}", "192.0.2.3}").Replace(good)
	s.Refused(message)
	s.Infra = strings.NewReplacer("192.0.2.3}", "192.0.2.5}", "192.0.2.4}", "192.0.2.3}").Replace(good)
	s.Refused(message)

	// In two setups the move is allowed, once no pod has the address.
	s.Infra = strings.Replace(good, "192.0.2.3}", "192.0.2.5}", 1)
	s.Setup()
	pod := s.Pod("demo-dns")
	annotate := func(value string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": %s}}}`, value)
		s.Must(s.Client.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, patch)))
	}
	annotate(`"[{\"default\": true, \"ips\": [\"10.0.0.9\"]}, {\"interface\": \"net1\", \"ips\": [\"192.0.2.3\"]}]"`)
	s.Infra = strings.NewReplacer("192.0.2.3}", "192.0.2.5}", "192.0.2.4}", "192.0.2.3}").Replace(good)
	s.Refused("pod demo-dns-0 uses 192.0.2.3 until it is replaced, and StatefulSet demo-proxy would start with the same address before that")
	annotate("null")
	s.Setup()

	// The address of a StatefulSet that setup deletes can be used immediately.
	s.Infra = strings.Replace(strings.Replace(s.Infra, "dhcp: {", "dhcp: {enabled: false, ", 1), "192.0.2.5}", "192.0.2.2}", 1)
	s.Setup()
	nad := s.Object(read.AttachmentKind, s.NetworkOf("demo-dns"))
	if config, _, _ := unstructured.NestedString(nad.Object, "spec", "config"); !strings.Contains(config, `"192.0.2.2/24"`) {
		t.Errorf("DNS has the network %s", config)
	}
}

// TestInfraThatIsSetUpAtTheSameTime lets another Infra create an object of the same name after setup has compared its objects.
func TestInfraThatIsSetUpAtTheSameTime(t *testing.T) {
	s := newSite(t)
	role := "oooi-" + s.Namespace + "-demo-proxy"
	other := fmt.Sprintf(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %s, namespace: %[2]s, labels: {app.kubernetes.io/managed-by: oooi}, annotations: {hostedcluster.densityops.com/infra: %[2]s/other}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
`, role, s.Namespace)
	file := filepath.Join(t.TempDir(), "infra.yaml")
	s.Must(os.WriteFile(file, []byte(s.Infra), 0o600))
	var printed strings.Builder
	stderr := writerFunc(func(text []byte) {
		before := printed.Len() > 0
		if printed.Write(text); !before {
			s.Apply(strings.Replace(s.Infra, "name: demo, namespace: "+s.Namespace+"}\nspec", "name: other, namespace: "+s.Namespace+"}\nspec", 1) + other)
		}
	})
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: stderr}
	code := cmd.Main(t.Context(), []string{"kubectl-oooi", "--kubeconfig", s.Kubeconfig, "setup", "-f", file, "--wait=false"}, streams)
	want := fmt.Sprintf("Role %s/%s exists and belongs to Infra or ProxyServer %[1]s/other: rename the Infra", s.Namespace, role)
	if code != 1 || !strings.Contains(printed.String(), want) {
		t.Errorf("setup exited with %d, stderr %s; want %s", code, printed.String(), want)
	}
}

// A writerFunc is called with everything that is written.
type writerFunc func([]byte)

func (f writerFunc) Write(text []byte) (int, error) {
	f(text)
	return len(text), nil
}

// TestSetupRefusesAddressesOnTheSameBridge sets up Infras whose NetworkAttachmentDefinitions have different names.
func TestSetupRefusesAddressesOnTheSameBridge(t *testing.T) {
	s := newSite(t)
	s.Setup()
	nad := func(namespace, name, config string) {
		t.Helper()
		s.Apply(fmt.Sprintf("{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: %s, namespace: %s}, spec: {config: '%s'}}", name, namespace, config))
	}
	nad(s.Namespace+"-demo", "vlan100", `{"cniVersion": "0.3.1", "name": "vlan100", "type": "cnv-bridge", "bridge": "`+s.Bridge+`"}`)
	nad(s.Namespace, "broken", "{")
	nad(s.Namespace, "alias", `{"cniVersion": "0.3.1", "name": "alias", "type": "bridge", "bridge": "`+s.Bridge+`"}`)
	nad(s.Namespace, "tagged", `{"cniVersion": "0.3.1", "name": "tagged", "type": "bridge", "bridge": "`+s.Bridge+`", "vlan": 7}`)
	proxy := func(network string) {
		t.Helper()
		s.Infra = fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: edge, namespace: %[1]s}
spec:
  networkConfig: {serverIP: 192.0.2.3/24, networkAttachmentName: %[2]s, gateway: 192.0.2.1}
  backends: [{name: registry, hostname: registry.example.com, port: 443, targetService: registry, targetPort: 5000, targetNamespace: %[1]s}]
`, s.Namespace, network)
	}
	for _, network := range []string{"alias", "vlan100, networkAttachmentNamespace: " + s.Namespace + "-demo"} {
		proxy(network)
		s.Refused("error: AddressConflict: 192.0.2.3 is also an address of Infra " + s.Namespace + "/demo on the same VLAN")
	}
	proxy("tagged")
	s.Setup()
}

// TestSetupRefusesToLoseServices changes the Services to which the proxy leads to ones that do not exist.
func TestSetupRefusesToLoseServices(t *testing.T) {
	s := newSite(t)
	s.Apply("{apiVersion: v1, kind: Service, metadata: {name: kube-apiserver, namespace: " + s.Namespace + "-demo}, spec: {ports: [{port: 6443}]}}")
	s.Setup()
	good := s.Infra
	s.Infra = strings.Replace(good, "proxy: {", "proxy: {apiServerService: nope, ", 1)
	s.Refused(" led to Service " + s.Namespace + "-demo/kube-apiserver before the change, and now Service " + s.Namespace + "-demo/nope does not exist; create the Service first, or correct its name")
	s.Infra = strings.Replace(good, "proxy: {", "proxy: {controlPlaneNamespace: default, ", 1)
	s.Refused(" before the change, and now Service default/kube-apiserver does not exist")
	s.Infra = strings.Replace(good, "proxy: {", "proxy: {internalProxyService: nope, ", 1)
	s.Refused("spec.infraComponents.proxy.internalProxyService: Service " + s.Namespace + "/nope does not exist")
	for _, service := range []string{"192.0.2.77", "demo-proxy"} {
		s.Infra = strings.Replace(good, "proxy: {", "proxy: {internalProxyService: "+service+", ", 1)
		s.Setup()
	}
}
