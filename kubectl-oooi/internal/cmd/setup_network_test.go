package cmd

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

// withoutNetwork is a site before somebody has made the machines' network.
func withoutNetwork(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	if err := s.Client.Delete(t.Context(), s.network()); err != nil {
		t.Fatal(err)
	}
	return s
}

// network is the machines', without what is in it.
func (s *site) network() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(read.AttachmentKind)
	u.SetNamespace(s.Namespace)
	u.SetName("vlan100")
	return u
}

func TestTheMachinesNetworkIsMadeOnRequest(t *testing.T) {
	s := withoutNetwork(t)
	s.Refused("let setup create it (--make-network)")
	what := fmt.Sprintf("NetworkAttachmentDefinition %s/vlan100 ", s.Namespace)
	if said := s.Setup("--make-network", "bridge=br-vlan100,vlan=100"); !strings.Contains(said, what+"created") {
		t.Errorf("setup said\n%s", said)
	}
	made := s.Everything()
	if said := s.Setup(); strings.Contains(said, "NetworkAttachmentDefinition") {
		t.Errorf("setup again, without the flag, said\n%s", said)
	}
	s.Unchanged(made)
	if said := s.Setup("--make-network", "bridge=br-vlan100,vlan=100,mtu=9000"); !strings.Contains(said, what+"configured") {
		t.Errorf("setup with another MTU said\n%s", said)
	}
	if _, said, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes"); code != 0 || !strings.Contains(said, what+"deleted") {
		t.Errorf("teardown ended with %d and said\n%s", code, said)
	}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(s.network()), s.network()); !apierrors.IsNotFound(err) {
		t.Errorf("the network is still there: %v", err)
	}
}

func TestANetworkThatOthersUseStays(t *testing.T) {
	machine := func(s *site) string {
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
		says string
	}{
		{"a virtual machine", machine, "VirtualMachineInstance %[1]s-demo/worker uses it"},
		{"another Infra", other, "Infra %[1]s/other uses it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := withoutNetwork(t)
			s.Setup("--make-network", "bridge=br-vlan100")
			s.Apply(tc.user(s))
			what := fmt.Sprintf("NetworkAttachmentDefinition %s/vlan100", s.Namespace)
			out, said, code := s.Run("teardown", "demo", "-n", s.Namespace, "--yes")
			if says := fmt.Sprintf(what+" is kept, and no longer managed by setup: "+tc.says, s.Namespace); code != 0 || strings.Contains(out, what+"\n") || !strings.Contains(said, says) {
				t.Errorf("teardown ended with %d and said\n%s%s", code, out, said)
			}
			there := s.network()
			if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(there), there); err != nil {
				t.Fatal(err)
			}
			if len(there.GetLabels()) > 0 || there.GetAnnotations()[v1alpha1.AnnotationInfra] != "" {
				t.Errorf("what is left is %v", there)
			}
		})
	}
}

func TestNetworksThatCannotBeMade(t *testing.T) {
	s := newSite(t)
	s.Refused("NetworkAttachmentDefinition "+s.Namespace+"/vlan100 exists and was not created by setup for this Infra", "--make-network", "bridge=br-vlan100")
	for flag, says := range map[string]string{
		"vxlan=eth0":              `"vxlan": no kind of network that can be made: want bridge, macvlan or localnet`,
		"br-vlan100":              `"br-vlan100": want KIND=DEVICE`,
		"bridge=":                 `"bridge=": want KIND=DEVICE`,
		"bridge=br0,vlan=5000":    "vlan=5000: want a number between 1 and 4094",
		"localnet=physnet,mtu=no": "mtu=no: want a number between 1280 and 65535",
		"bridge=br0,trunk=yes":    `"trunk=yes": want vlan=ID or mtu=BYTES`,
		"macvlan=eth1,vlan=100":   "vlan=100: macvlan adds no tag: name the node's interface that does, such as eth1.100",
	} {
		s.Refused("--make-network: "+says, "--make-network", flag)
	}
}
