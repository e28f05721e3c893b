package setup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/test/lab"
)

// guide returns an object of the earlier operator's guide.
func guide(t *testing.T, name string) string {
	t.Helper()
	return readFile(t, filepath.Join("..", "..", "..", "api", "testdata", "guide", name))
}

// guideNetwork returns the network of the guide.
func guideNetwork(t *testing.T) string {
	t.Helper()
	return readFile(t, filepath.Join("testdata", "guide-network.yaml"))
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// guideSite returns a site with the namespaces, the network and the control plane's Services that the guide refers to.
func guideSite(t *testing.T) *site {
	t.Helper()
	s := &site{cmdtest.NewEmpty(t, management.Get(t), "hosted-clusters", cmd.Main)}
	hosted := lab.HostedCluster{Namespace: "clusters", Name: "mycluster", BaseDomain: "example.com"}
	objects := "{apiVersion: v1, kind: Namespace, metadata: {name: hosted-clusters}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: clusters}}\n---\n" +
		"{apiVersion: v1, kind: Namespace, metadata: {name: clusters-mycluster}}\n---\n" + hosted.YAML() + guideNetwork(t)
	for name, port := range map[string]int{"kube-apiserver": 6443, "oauth-openshift": 6443, "ignition-server-proxy": 443, "konnectivity-server": 8091} {
		objects += fmt.Sprintf("---\n{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: clusters-mycluster}, spec: {ports: [{port: %d}]}}\n", name, port)
	}
	s.Apply(objects)
	t.Cleanup(func() {
		if err := s.ControlPlane.DeleteYAML(s.AfterTest(), []byte(hosted.YAML())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestGuideProxyAlone sets up the proxy alone of the earlier operator's guide, without a change of its objects.
func TestGuideProxyAlone(t *testing.T) {
	s := guideSite(t)
	before := s.Everything()
	s.Infra = guide(t, "proxyserver.yaml")
	t.Log("the pod of the earlier operator")
	const deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: proxy-server-mycluster-proxy, namespace: hosted-clusters}, " +
		"spec: {replicas: 0, selector: {matchLabels: {app: proxy-server}}, template: {metadata: {labels: {app: proxy-server}}, spec: {containers: [{name: envoy, image: example.com/envoy}]}}}}"
	s.Apply(deployment)
	s.Refused("objects of the earlier operator may use addresses of this VLAN: Deployment hosted-clusters/proxy-server-mycluster-proxy")
	s.Must(s.ControlPlane.DeleteYAML(s.Context(), []byte(deployment)))
	s.Unchanged(before)
	s.Expect(0, "setup -f FILE --wait=false",
		"Warning: spec.networkConfig.serverIP: 192.168.100.4 has no prefix length; /24 is assumed.",
		"Warning: ServiceNotFound: spec.backends[1] oauth-openshift: Service clusters-mycluster/oauth-openshift has no port 443",
		"; HyperShift creates oauth-openshift:6443: correct targetService and targetPort",
		"spec.managerImage is ignored",
		"StatefulSet hosted-clusters/mycluster-proxy-proxy created",
		"NetworkPolicy clusters-mycluster/oooi-hosted-clusters-mycluster-proxy-proxy created",
	)
	out, _, _ := s.Run("setup", "-f", "FILE", "--dry-run=server")
	for line := range strings.Lines(out) {
		if strings.Contains(line, "created") || strings.Contains(line, "configured") {
			t.Errorf("a second setup would change %s", line)
		}
	}
	s.Infra = strings.ReplaceAll(s.Infra, "targetPort: 443", "targetPort: 6443")
	if stderr := s.Setup(); strings.Contains(stderr, "ServiceNotFound") {
		t.Errorf("with the right port setup printed %s", stderr)
	}

	s.Infra = guide(t, "samples.yaml")
	s.Expect(0, "setup -f FILE --dry-run=server",
		"Service clusters-mycluster/ignition does not exist; HyperShift creates ignition-server-proxy:443",
		"Service clusters-mycluster/konnectivity does not exist; HyperShift creates konnectivity-server:8091",
	)
	t.Log("the address of another proxy")
	s.Infra = strings.ReplaceAll(guide(t, "samples.yaml"), "192.168.100.5", "192.168.100.4/24")
	s.Refused("AddressConflict: 192.168.100.4 is also an address of ProxyServer hosted-clusters/mycluster-proxy")
	t.Log("the guide's Infra, with the address of the proxy alone")
	s.Infra = guide(t, "infra.yaml")
	s.Refused("AddressConflict: 192.168.100.4 is also an address of ProxyServer hosted-clusters/mycluster-proxy")
	s.Refused("NetworkAttachmentDefinition hosted-clusters/tenant-vlan-100 assigns addresses by ipam of type static")
	t.Log("fields that users of the guide add")
	s.Infra = strings.Replace(guide(t, "samples.yaml"), "spec:\n", "spec:\n  replicas: 3\n", 1)
	s.Refused("infraComponents.proxy.instances")
	s.Infra = strings.Replace(guide(t, "samples.yaml"), "spec:\n", "spec:\n  resources: {limits: {memory: 1Gi}}\n", 1)
	s.Expect(0, "setup -f FILE --dry-run=server")
	s.Expect(0, "teardown proxyserver/mycluster-proxy -n hosted-clusters --yes")
	// Other tests may have deployed the objects that all Infras share.
	shared := func(object string) bool { return strings.Contains(object, "/oooi-") }
	if got, want := slices.DeleteFunc(s.Everything(), shared), slices.DeleteFunc(before, shared); !slices.Equal(got, want) {
		t.Errorf("objects after teardown: %q, want %q", got, want)
	}
}

// TestSubnetOfAnotherProxy sets up a proxy without a prefix length beside one with a prefix length.
func TestSubnetOfAnotherProxy(t *testing.T) {
	s := guideSite(t)
	s.Infra = strings.ReplaceAll(guide(t, "samples.yaml"), "192.168.100.5", "192.168.100.5/25")
	s.Setup()
	s.Infra = guide(t, "proxyserver.yaml")
	if stderr := s.Setup(); strings.Contains(stderr, "prefix length") {
		t.Errorf("setup printed %s", stderr)
	}
	out, _, code := s.Run("diff", "-f", "FILE")
	if code != 0 {
		t.Errorf("diff exited with %d: %s", code, out)
	}
	alone := s.Infra
	s.Infra += "---\n" + guideNetwork(t)
	if out, stderr, _ := s.Run("setup", "-f", "FILE", "--dry-run=client"); !strings.Contains(out, "192.168.100.4/24") {
		t.Errorf("without the cluster the address is not in a subnet /24: %s\n%s", stderr, out)
	}
	s.Infra = alone
	networks := &unstructured.UnstructuredList{}
	networks.SetGroupVersionKind(schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinitionList"})
	s.Must(s.Client.List(s.Context(), networks, client.InNamespace("hosted-clusters")))
	if !slices.ContainsFunc(networks.Items, func(n unstructured.Unstructured) bool {
		return strings.HasPrefix(n.GetName(), "mycluster-proxy-proxy") && strings.Contains(fmt.Sprint(n.Object["spec"]), "192.168.100.4/25")
	}) {
		t.Errorf("no network of the pod has the subnet of the cluster: %v", networks.Items)
	}
	for _, name := range []string{"mycluster-samples", "mycluster-proxy"} {
		if _, stderr, code := s.Run("teardown", name, "-n", "hosted-clusters", "--yes"); code != 0 {
			t.Errorf("teardown exited with %d, stderr %s", code, stderr)
		}
	}
}
