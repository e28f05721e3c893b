package setup_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// newSiteWithoutNetwork returns a site whose NetworkAttachmentDefinition of the VMs does not exist.
func newSiteWithoutNetwork(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.Must(s.Client.Delete(t.Context(), s.network()))
	return s
}

// network returns the VMs' NetworkAttachmentDefinition, with only its name.
func (s *site) network() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(read.AttachmentKind)
	u.SetNamespace(s.Namespace)
	u.SetName("vlan100")
	return u
}

func TestMakeNetwork(t *testing.T) {
	s := newSiteWithoutNetwork(t)
	s.Refused("let setup create it (--make-network)")
	what := fmt.Sprintf("NetworkAttachmentDefinition %s/vlan100 ", s.Namespace)
	s.Expect(0, "setup -f FILE --wait=false --make-network bridge=br-vlan100,vlan=100", what+"created")
	before := s.Everything()
	if stderr := s.Setup(); strings.Contains(stderr, "NetworkAttachmentDefinition") {
		t.Errorf("setup without the flag changed the network:\n%s", stderr)
	}
	s.Unchanged(before)
	s.Expect(0, "setup -f FILE --wait=false --make-network bridge=br-vlan100,vlan=100,mtu=9000", what+"configured")
	s.Expect(0, "teardown demo -n $NS --yes", what+"deleted")
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(s.network()), s.network()); !apierrors.IsNotFound(err) {
		t.Errorf("the network still exists: %v", err)
	}
}

func TestTeardownKeepsANetworkInUse(t *testing.T) {
	vm := func(s *site) string {
		return fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: worker, namespace: %[1]s-demo}
spec:
  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}
  networks: [{name: vlan, multus: {networkName: %[1]s/vlan100}}]
`, s.Namespace)
	}
	other := func(s *site) string {
		return strings.NewReplacer("name: demo, namespace: "+s.Namespace+"}\nspec", "name: other, namespace: "+s.Namespace+"}\nspec").Replace(s.Infra)
	}
	for _, tc := range []struct {
		name string
		user func(*site) string
		want string
	}{
		{"a VM", vm, "VirtualMachineInstance %[1]s-demo/worker uses it"},
		{"another Infra", other, "Infra %[1]s/other uses it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSiteWithoutNetwork(t)
			s.Setup("--make-network", "bridge=br-vlan100")
			s.Apply(tc.user(s))
			what := fmt.Sprintf("NetworkAttachmentDefinition %s/vlan100", s.Namespace)
			out, stderr, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes")
			if want := fmt.Sprintf(what+" is kept, and no longer managed by setup: "+tc.want, s.Namespace); code != 0 || strings.Contains(out, what+"\n") || !strings.Contains(stderr, want) {
				t.Errorf("teardown exited with %d, stderr\n%s%s", code, out, stderr)
			}
			network := s.network()
			s.Must(s.Client.Get(t.Context(), client.ObjectKeyFromObject(network), network))
			if len(network.GetLabels()) > 0 || network.GetAnnotations()[v1alpha1.AnnotationInfra] != "" {
				t.Errorf("the network still has labels or the annotation of setup: %v", network)
			}
		})
	}
}

func TestInvalidMakeNetwork(t *testing.T) {
	s := newSite(t)
	s.Refused("NetworkAttachmentDefinition "+s.Namespace+"/vlan100 exists and was not created by setup for this Infra", "--make-network", "bridge=br-vlan100")
	for flag, want := range map[string]string{
		"vxlan=eth0":              `"vxlan=eth0": want bridge=BRIDGE, macvlan=INTERFACE or localnet=NETWORK`,
		"br-vlan100":              `"br-vlan100": want bridge=BRIDGE`,
		"bridge=":                 `"bridge=": want bridge=BRIDGE`,
		"bridge=br0,vlan=5000":    `"vlan=5000": want vlan=ID with an ID between 1 and 4094`,
		"localnet=physnet,mtu=no": `"mtu=no": want vlan=ID with an ID between 1 and 4094, or mtu=BYTES with a number between 1280 and 65535`,
		"bridge=br0,trunk=yes":    `"trunk=yes": want vlan=ID`,
		"macvlan=eth1,vlan=100":   "vlan=100: macvlan adds no tag; specify the node's VLAN interface, such as eth1.100",
	} {
		s.Refused("--make-network: "+want, "--make-network", flag)
	}
}
