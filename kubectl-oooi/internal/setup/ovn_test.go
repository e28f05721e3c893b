package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/test/lab"
)

// TestOVNKubernetesAdmitsPods renders the example on networks of OVN-Kubernetes, as an administrator writes them
// and as OVN-Kubernetes creates them for a ClusterUserDefinedNetwork. The admission is modelled by lab.PortOf.
func TestOVNKubernetesAdmitsPods(t *testing.T) {
	const several = "proxy: {serverIP: 192.168.100.4, instances: [{ip: 192.168.100.5}, {ip: 192.168.100.6}, {ip: 192.168.100.7}]}"
	for _, network := range []struct{ name, config string }{
		{"of an administrator", `{"cniVersion": "0.3.1", "name": "physnet", "netAttachDefName": "clusters/vlan100", "type": "ovn-k8s-cni-overlay", "topology": "localnet", "vlanID": 100}`},
		{"of a ClusterUserDefinedNetwork", `{"cniVersion": "1.0.0", "name": "cluster_udn_vlan100", "netAttachDefName": "clusters/vlan100", "role": "secondary", "topology": "localnet", "type": "ovn-k8s-cni-overlay", "physicalNetworkName": "physnet", "vlanID": 100}`},
		{"with settings that need subnets", `{"cniVersion": "1.0.0", "name": "physnet", "netAttachDefName": "clusters/vlan100", "topology": "localnet", "type": "ovn-k8s-cni-overlay", "vlanID": 100, "excludeSubnets": "192.168.100.0/29", "allowPersistentIPs": true}`},
	} {
		for _, proxies := range []struct{ name, text string }{{"one proxy", ""}, {"three proxies", several}} {
			t.Run(network.name+", "+proxies.name, func(t *testing.T) {
				checkOVN(t, network.config, proxies.text)
			})
		}
	}
}

// checkOVN renders the example on a network, and checks that OVN-Kubernetes accepts its pods. proxies replaces the
// proxy of the example, unless it is empty.
func checkOVN(t *testing.T, network, proxies string) {
	t.Helper()
	root, err := lab.Root()
	lab.Must(t, err)
	var files []string
	for _, name := range []string{"infra.yaml", "cluster.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, "manifests", "examples", "demo", name))
		lab.Must(t, err)
		const bridge, one = `{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "br-vlan100"}`, "proxy: {serverIP: 192.168.100.4}"
		changed := strings.ReplaceAll(string(text), bridge, network)
		if proxies != "" {
			changed = strings.ReplaceAll(changed, one, proxies)
		}
		file := filepath.Join(t.TempDir(), name)
		lab.Must(t, os.WriteFile(file, []byte(changed), 0o600))
		files = append(files, file)
	}
	plan := planOf(t, files...)
	definitions := map[string]string{}
	for _, o := range plan.Objects {
		if o.GetKind() == "NetworkAttachmentDefinition" {
			definitions[o.GetNamespace()+"/"+o.GetName()], _, _ = unstructured.NestedString(o.Object, "spec", "config")
		}
	}
	pods, addresses := 0, map[string]bool{}
	for _, o := range plan.Objects {
		if o.GetKind() != "StatefulSet" {
			continue
		}
		pods++
		set := &appsv1.StatefulSet{}
		lab.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, set))
		s, err := lab.NetworkSelectionOf(set.Spec.Template.Annotations)
		if err != nil {
			t.Fatalf("%s: %v", set.Name, err)
		}
		if _, err := lab.PortOf(definitions[s.Namespace+"/"+s.Name], s); err != nil {
			t.Errorf("%s: OVN-Kubernetes refuses %+v on %s: %v", set.Name, s, definitions[s.Namespace+"/"+s.Name], err)
		}
		// The pod's addresses: the port's addresses, or addresses that xdsd hold adds to a port without port security.
		own := s.IPs
		for _, c := range set.Spec.Template.Spec.Containers {
			if c.Name == "holder" {
				if len(s.IPs) > 0 || s.MAC == "" {
					t.Errorf("%s: port security would drop the floating address: %+v", set.Name, s)
				}
				for i, arg := range c.Command {
					if arg == "--own" {
						own = strings.Split(c.Command[i+1], ",")
					}
				}
				if !strings.Contains(strings.Join(c.Command, " "), " --gateway 192.168.100.1") {
					t.Errorf("%s: replies leave by the pod network: %q", set.Name, c.Command)
				}
			}
		}
		for _, a := range own {
			addresses[a] = true
		}
	}
	if len(addresses) != pods || !addresses["192.168.100.2/24"] || !addresses["192.168.100.3/24"] || addresses["192.168.100.4/24"] == (proxies != "") {
		t.Errorf("%d pods have the addresses %v", pods, addresses)
	}
}
