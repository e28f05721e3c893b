package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestNetworkOfVMs has a network of VMs, and an MTU in DHCP options.
func TestNetworkOfVMs(t *testing.T) {
	const infra = "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: demo, namespace: clusters}\nspec:\n  hostedClusterRef: {name: demo}\n" +
		"  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan}\n" +
		"  infraComponents: {dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.10, rangeEnd: 192.0.2.99, options: [{name: mtu, value: \"1500\"}]}, dns: {serverIP: 192.0.2.3}, proxy: {serverIP: 192.0.2.4}}\n"
	const machine = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: worker, namespace: clusters-demo}\n" +
		"spec: {domain: {devices: {interfaces: [{name: vlan%s}]}}, networks: [{name: vlan, multus: {networkName: clusters/vlan}}]}\n"
	link := func(mtu int) map[page]string {
		return map[page]string{dnsMetrics: sortMetrics(fmt.Sprintf("oooi_interface_up{interface=\"net1\"} 1\noooi_interface_mtu_bytes{interface=\"net1\"} %d\n", mtu))}
	}
	const dropped = "warn spec.config has macspoofchk, and VM clusters-demo/worker has no macAddress in its spec: a migrated VM keeps its MAC address, but its new pod gets another one, so that the network drops the VM's frames"
	mtu := func(n int) string {
		return fmt.Sprintf("fail infraComponents.dhcp.options sets MTU 1500, but NetworkAttachmentDefinition clusters/vlan has MTU %d", n)
	}
	for _, tc := range []struct {
		name, config, mac string
		pages             map[page]string
		want              []string
	}{
		{"suitable", `{"type": "bridge", "bridge": "br", "macspoofchk": true, "mtu": 1500}`, ", macAddress: 02:00:00:00:00:01", nil, []string{}},
		{"MAC address of the pod", `{"type": "bridge", "bridge": "br", "macspoofchk": true}`, "", nil, []string{dropped}},
		{"MAC address of the pod, and any is accepted", `{"type": "bridge", "bridge": "br", "macspoofchk": false}`, "", nil, []string{}},
		{"MTU of the configuration", `{"type": "bridge", "bridge": "br", "mtu": 9000}`, "", nil, []string{mtu(9000)}},
		{"MTU of the link", `{"type": "ovn-k8s-cni-overlay", "topology": "localnet", "name": "physnet"}`, "", link(1400), []string{mtu(1400)}},
		{"MTU of both", `{"type": "ovn-k8s-cni-overlay", "topology": "localnet", "name": "physnet", "mtu": 1500}`, "", link(1500), []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			network := "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: vlan, namespace: clusters}\nspec: {config: '" + tc.config + "'}\n"
			got := findingsOn(t, "OOOI-NET-005", tc.pages, infra, network, fmt.Sprintf(machine, tc.mac))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNetworkOfVMsByAnotherDefinition has a VM on the network of the Infra by a NetworkAttachmentDefinition of its own namespace,
// as on clusters whose Multus isolates namespaces.
func TestNetworkOfVMsByAnotherDefinition(t *testing.T) {
	const machine = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: worker, namespace: clusters-demo}\n" +
		"spec: {domain: {devices: {interfaces: [{name: vlan}]}}, networks: [{name: vlan, multus: {networkName: same}}]}\n"
	network := func(name, more string) string {
		return "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: " + name + "\nspec: {config: '{\"type\": \"bridge\", \"bridge\": \"br\"" + more + "}'}\n"
	}
	const checks = `, "macspoofchk": true`
	infras, own := network("{name: vlan, namespace: clusters}", ""), network("{name: same, namespace: clusters-demo}", checks)
	if got := findingsOn(t, "OOOI-NET-005", nil, infras, own, machine); len(got) != 1 || !strings.HasPrefix(got[0], "warn spec.config has macspoofchk, and VM clusters-demo/worker") {
		t.Errorf("with macspoofchk for the VM: %q", got)
	}
	infras, own = network("{name: vlan, namespace: clusters}", checks), network("{name: same, namespace: clusters-demo}", "")
	if got := findingsOn(t, "OOOI-NET-005", nil, infras, own, machine); len(got) != 0 {
		t.Errorf("with macspoofchk for our pods only: %q", got)
	}
}

// TestMigratedVM covers the pod of a VM that has another MAC address than the VM.
func TestMigratedVM(t *testing.T) {
	const machine = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: worker, namespace: clusters-demo, uid: vm-1}\n" +
		"spec: {domain: {devices: {interfaces: [{name: vlan, macAddress: 02:00:00:00:00:0a}]}}, networks: [{name: vlan, multus: {networkName: clusters/vlan}}]}\n" +
		"status: {nodeName: n2, interfaces: [{name: vlan, mac: 02:00:00:00:00:0A}]}\n"
	launcher := func(node, mac string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: virt-launcher-worker-" + node + "\n  namespace: clusters-demo\n  labels: {kubevirt.io/created-by: vm-1}\n" +
			"  annotations: {k8s.v1.cni.cncf.io/network-status: '[{\"name\": \"clusters/vlan\", \"interface\": \"pod1\", \"mac\": \"" + mac + "\"}]'}\n" +
			"spec: {nodeName: " + node + "}\nstatus: {phase: Running}\n"
	}
	const (
		checked, free = `{"type": "bridge", "bridge": "br", "macspoofchk": true}`, `{"type": "bridge", "bridge": "br"}`
		localnet      = `{"type": "ovn-k8s-cni-overlay", "topology": "localnet", "name": "physnet"}`
		own, other    = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
	)
	dropped := []string{"fail the VM has MAC address 02:00:00:00:00:0A on the VLAN, and its pod virt-launcher-worker-n2 has 02:00:00:00:00:0b, as after a migration of a VM without macAddress in its spec: the network drops the frames of the VM"}
	for _, tc := range []struct {
		name, config, source, target string
		want                         []string
	}{
		{"the pod has the VM's address", checked, other, own, []string{}},
		{"the pod has another one", checked, own, other, dropped},
		{"the pod has another one, and OVN-Kubernetes", localnet, own, other, dropped},
		{"the pod has another one, and the network accepts all", free, own, other, []string{}},
		{"the pod has none", checked, own, "", []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			network := "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: vlan, namespace: clusters}\nspec: {config: '" + tc.config + "'}\n"
			got := findingsOn(t, "OOOI-NET-005", nil, network, machine, launcher("n1", tc.source), launcher("n2", tc.target))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNamesOfPods covers the pods of our components, whose Events are read.
func TestNamesOfPods(t *testing.T) {
	for name, want := range map[string]bool{
		"demo-dhcp-0": true, "demo-dhcp-198-18-50-15-0": true, "demo-proxy-2001-db8--5-0": true, "demo-proxy-fd00---0": true,
		"demo-dhcp-check-x7k2p": false, "virt-launcher-demo-0": false, "demo-dnsmasq-0": false,
	} {
		if got := ownPodName.MatchString(name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}

// TestCauseAtTheEndOfALongLineIsQuoted quotes an error that a CNI plugin returned to Multus, and that to the kubelet.
func TestCauseAtTheEndOfALongLineIsQuoted(t *testing.T) {
	long := "Failed to create pod sandbox: " + strings.Repeat("rpc error: ", 100) + `failed to find OVN bridge-mapping for network: "physnet"`
	lines := quotable(long)
	if len(lines) != 1 || len(lines[0]) > quoteBytes+len("[...]") {
		t.Fatalf("%q", lines)
	}
	if why, _ := startFailure(lines[0], "n1"); why != "network physnet has no OVN bridge mapping on node n1" {
		t.Errorf("%q in %q", why, lines)
	}
}

// TestEgressFirewallIsNamed covers an EgressFirewall in the Infra's namespace, and one in another.
func TestEgressFirewallIsNamed(t *testing.T) {
	for namespace, want := range map[string]string{
		"clusters": "check that EgressFirewall clusters/default allows egress to the API server and to the upstream resolvers: kubectl -n clusters get egressfirewall default -o yaml; otherwise ",
		"others":   "",
	} {
		facts := NewFacts(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		for _, text := range append(slices.Clone(fuzzObjects), "apiVersion: k8s.ovn.org/v1\nkind: EgressFirewall\nmetadata: {name: default, namespace: "+namespace+"}\nspec: {egress: [{type: Deny, to: {cidrSelector: 0.0.0.0/0}}]}\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
				t.Fatal(err)
			}
			facts.add(u)
		}
		s := NewSite(facts, "clusters/demo")
		s.reads = in(AtInfra, egressFirewalls)
		if got := s.firewallRemedy(); got != want {
			t.Errorf("in namespace %s: %q, want %q", namespace, got, want)
		}
	}
}
