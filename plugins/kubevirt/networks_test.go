package kubevirt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/test/lab"
)

// nad returns the YAML of a NetworkAttachmentDefinition of OVN-Kubernetes, as created for a ClusterUserDefinedNetwork with a
// VLAN ID; without a configuration if the VLAN ID is 0.
func nad(namespace, name string, vlan int) string {
	config := ""
	if vlan > 0 {
		config = fmt.Sprintf(`{"cniVersion":"1.0.0","name":"cluster_udn_vlan%[3]d","type":"ovn-k8s-cni-overlay","netAttachDefName":"%[1]s/%[2]s","topology":"localnet","physicalNetworkName":"physnet","vlanID":%[3]d}`,
			namespace, name, vlan)
	}
	return fmt.Sprintf("apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: %s, namespace: %s}\nspec: {config: '%s'}\n---\n", name, namespace, config)
}

// onNetwork returns the YAML of a VirtualMachineInstance with one interface, on a network.
func onNetwork(namespace, name, mac, network string) string {
	return strings.Replace(vmi(namespace, name, mac, "demo", ""), "networkName: clusters/vlan", "networkName: "+network, 1)
}

// TestVMsOnTheSameNetworkAreServed covers VMs whose NetworkAttachmentDefinitions are in other namespaces than the
// plugin's, with two replicas.
func TestVMsOnTheSameNetworkAreServed(t *testing.T) {
	cp := lab.New(t, lab.Config{CRDs: []lab.CRDSet{lab.KubeVirt, lab.KubeVirtMachines}})
	infra, vms := cp.Namespace(t), cp.Namespace(t)
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	c := config{network: infra + "/vlan50", namespaces: vms, kubeconfig: cp.Kubeconfig(), snapshot: snapshot}
	replicas := []*runningDirectory{startDirectory(t, c), startDirectory(t, config{network: c.network, namespaces: vms, kubeconfig: c.kubeconfig})}
	d := replicas[0]
	expect := func(when, mac, owner string) {
		t.Helper()
		for n, replica := range replicas {
			lab.Poll(t, fmt.Sprintf("%s: %s to belong to %q at replica %d", when, mac, owner, n), func() bool { return vmOf(t, replica.directory, mac) == owner })
		}
	}
	lab.Poll(t, "the directory to be synced without the API of Multus", d.Synced)
	const macC, macD = "02:00:00:00:00:0c", "02:00:00:00:00:0d"
	cp.MustApply(t, onNetwork(vms, "named", macA, c.network)+onNetwork(vms, "same", macB, "vlan50")+onNetwork(vms, "other", macC, "vlan60"))
	expect("without the API of Multus", macA, "named")
	same := vm.Interface{Namespace: vms, VM: "same", Name: "vlan"}
	if got := vmOf(t, d.directory, macB); got != "" || !d.Exists(same) {
		t.Errorf("an interface whose network is unknown belongs to %q; it exists: %t", got, d.Exists(same))
	}
	if lines := d.log.Lines("cannot read NetworkAttachmentDefinitions", infra, "grant list and watch"); len(lines) != 1 {
		t.Errorf("the log has %q", lines)
	}

	lab.Must(t, cp.InstallCRDs(t.Context(), lab.NetworkAttachmentDefinition))
	cp.MustApply(t, nad(infra, "vlan50", 50)+nad(vms, "broken", 0)+nad(vms, "vlan60", 60))
	lab.Poll(t, "the network to be identified", func() bool { s := d.state(); return s.Network == "localnet physnet vlan 50" && s.NetworkProblem == "" })
	lab.Poll(t, "the other network to be known", func() bool { return !d.Exists(vm.Interface{Namespace: vms, VM: "other", Name: "vlan"}) })
	cp.MustApply(t, nad(vms, "vlan50", 50))
	expect("with a NetworkAttachmentDefinition of the same network", macB, "same")
	cp.MustApply(t, nad(vms, "vlan60", 50))
	expect("with a NetworkAttachmentDefinition that becomes one of the same network", macC, "other")

	// VMs that run stay on the network, whatever happens to the NetworkAttachmentDefinitions.
	cp.MustApply(t, nad(vms, "vlan60", 60))
	lab.Must(t, cp.DeleteYAML(t.Context(), []byte(nad(vms, "vlan50", 50)+nad(infra, "vlan50", 50))))
	lab.Poll(t, "the deletion to be reported", func() bool { return strings.Contains(d.state().NetworkProblem, "does not exist") })
	expect("after the deletion of the NetworkAttachmentDefinitions", macB, "same")
	expect("after the change to the NetworkAttachmentDefinition", macC, "other")
	cp.MustApply(t, onNetwork(vms, "late", macD, "vlan60"))
	cp.MustApply(t, strings.Replace(onNetwork(vms, "same", macB, "vlan50"), "metadata: {", "metadata: {annotations: {a: b}, ", 1))
	lab.Poll(t, "the snapshot file to contain the VM", func() bool {
		data, err := os.ReadFile(snapshot)
		return err == nil && strings.Contains(string(data), macC) && strings.Contains(string(data), macB)
	})
	d.stop()
	replicas[0] = startDirectory(t, c)
	lab.Poll(t, "the restarted directory to be synced", replicas[0].Synced)
	expect("after a restart without the NetworkAttachmentDefinitions", macB, "same")
	expect("after a restart without the NetworkAttachmentDefinitions", macA, "named")
	if got := vmOf(t, replicas[0].directory, macD); got != "" {
		t.Errorf("a VM on another network is served: %s", got)
	}
	cp.MustApply(t, nad(vms, "vlan70", 50)+onNetwork(vms, "new", macD[:15]+"0e", "vlan70"))
	expect("with the identity in the snapshot file, and the other replica's", macD[:15]+"0e", "new")
}

// TestInterfaceLeavesTheNetworkWithItsInstance covers what ends the membership of an interface.
func TestInterfaceLeavesTheNetworkWithItsInstance(t *testing.T) {
	on := func(uid types.UID, network string) *instance {
		i := worker("w1", "")
		i.UID, i.Interfaces, i.attachments = uid, nil, []attachment{{nic{"vlan", macA}, network}}
		return i
	}
	for _, tc := range []struct {
		name  string
		after *instance
		want  string
	}{
		{"the same instance", on("a", "clusters-demo/vlan"), "w1"},
		{"another instance of the VM", on("b", "clusters-demo/vlan"), ""},
		{"another NetworkAttachmentDefinition", on("a", "clusters-demo/other"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := testDirectory("")
			d.updateNetworks(func(n *networks) bool {
				return n.set("clusters/vlan", "bridge br1 vlan 1") && n.set("clusters-demo/vlan", "bridge br1 vlan 1")
			})
			d.put(on("a", "clusters-demo/vlan"))
			if got := vmOf(t, d, macA); got != "w1" {
				t.Fatalf("the interface belongs to %q", got)
			}
			d.updateNetworks(func(n *networks) bool { return n.set("clusters-demo/vlan", "bridge br1 vlan 2") })
			d.put(tc.after)
			if got := vmOf(t, d, macA); got != tc.want {
				t.Errorf("the interface belongs to %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNamespacesOfNetworks(t *testing.T) {
	for _, tc := range []struct {
		c    config
		want string
	}{
		{config{network: "clusters/vlan"}, "[]"},
		{config{network: "clusters/vlan", namespaces: "clusters-demo"}, "[clusters clusters-demo]"},
		{config{network: "default/vlan", namespaces: "clusters-demo,default"}, "[clusters-demo default]"},
	} {
		if got := fmt.Sprint(tc.c.networkNamespaces()); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.c, got, tc.want)
		}
	}
}
