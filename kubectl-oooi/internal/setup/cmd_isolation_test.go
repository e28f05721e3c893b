package setup_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/model"
)

// isolateNamespaces writes the configuration of Multus until the end of the test.
func (s *site) isolateNamespaces(t *testing.T) {
	t.Helper()
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "multus-daemon-config"},
		Data:       map[string]string{"daemon-config.json": model.OpenShiftIsolation.String()},
	}
	s.CreateForTest(config)
}

// Objects of a hosted cluster in namespace NS.
const (
	poolOn = `
apiVersion: hypershift.openshift.io/v1beta1
kind: NodePool
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  clusterName: demo
  replicas: 2
  management: {upgradeType: Replace}
  release: {image: registry.example.com/release:4.20}
  platform: {type: KubeVirt, kubevirt: {attachDefaultNetwork: false, additionalNetworks: [{name: %[3]s}]}}
---
`
	vmOn = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: %[2]s, namespace: %[1]s-demo}
spec:
  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}
  networks: [{name: vlan, multus: {networkName: %[3]s}}]
---
`
	networkIn = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: %[1]s}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "%[2]s"}'}
---
`
)

func TestSetupRefusesVMsThatMultusRejects(t *testing.T) {
	const (
		remedy  = "use a ClusterUserDefinedNetwork that selects namespaces NS and NS-demo, a NetworkAttachmentDefinition in namespace default, or an Infra in namespace NS-demo"
		pool    = "NodePool NS/workers: Multus isolates namespaces, and rejects the VMs' pods in namespace NS-demo, which refer to NetworkAttachmentDefinition NS/vlan100; " + remedy
		vm      = "VirtualMachineInstance NS-demo/worker: Multus isolates namespaces, and rejects the VMs' pods in namespace NS-demo, which refer to NetworkAttachmentDefinition NS/vlan100; " + remedy
		nothing = "VMs cannot use the network: Multus isolates namespaces, and rejects the VMs' pods in namespace NS-demo, which refer to NetworkAttachmentDefinition NS/vlan100; " + remedy
	)
	for _, tc := range []struct {
		name                       string
		objects                    func(ns, bridge string) string
		shared                     bool // Multus does not isolate namespaces
		refused, warning, suggests string
	}{
		{name: "NodePool", objects: func(ns, _ string) string { return fmt.Sprintf(poolOn, ns, "workers", ns+"/vlan100") }, refused: pool},
		{name: "VM", objects: func(ns, _ string) string { return fmt.Sprintf(vmOn, ns, "worker", ns+"/vlan100") }, refused: vm},
		{name: "no isolation", shared: true, objects: func(ns, _ string) string { return fmt.Sprintf(poolOn, ns, "workers", ns+"/vlan100") }},
		{name: "same network in the VMs' namespace", objects: func(ns, bridge string) string {
			return fmt.Sprintf(poolOn, ns, "workers", ns+"-demo/vlan100") + fmt.Sprintf(networkIn, ns+"-demo", bridge)
		}},
		{name: "replaced NodePool", objects: func(ns, bridge string) string {
			return fmt.Sprintf(poolOn, ns, "workers", ns+"-demo/vlan100") + fmt.Sprintf(networkIn, ns+"-demo", bridge) + fmt.Sprintf(vmOn, ns, "worker", ns+"/vlan100")
		}, warning: vm},
		{name: "NodePool on another network", objects: func(ns, _ string) string {
			return fmt.Sprintf(poolOn, ns, "workers", ns+"/vlan100") + fmt.Sprintf(poolOn, ns, "others", ns+"-demo/vlan100") + fmt.Sprintf(networkIn, ns+"-demo", "br-other")
		}, refused: pool},
		{name: "no NodePool", objects: func(ns, bridge string) string { return fmt.Sprintf(networkIn, ns+"-demo", bridge) }, suggests: "NS-demo/vlan100"},
		{name: "neither NodePool nor network", objects: func(string, string) string { return "" }, warning: nothing, suggests: "NS/vlan100"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			if !tc.shared {
				s.isolateNamespaces(t)
			}
			s.Apply(tc.objects(s.Namespace, s.Bridge))
			in := func(text string) string { return strings.ReplaceAll(text, "NS", s.Namespace) }
			if tc.refused != "" {
				s.Refused(in(tc.refused))
				return
			}
			out, stderr, code := s.Run("setup", "-f", "FILE", "--wait=false")
			if code != 0 || strings.Contains(stderr, "Multus") != (tc.warning != "") || !strings.Contains(stderr, in(tc.warning)) {
				t.Errorf("setup exited with %d, stderr\n%s\nwant the warning %q", code, stderr, in(tc.warning))
			}
			const advice = "additionalNetworks of the NodePools to "
			if strings.Contains(out, advice) != (tc.suggests != "") || !strings.Contains(out, in(tc.suggests)) {
				t.Errorf("stdout\n%s\nwant the network %q", out, in(tc.suggests))
			}
		})
	}
}
