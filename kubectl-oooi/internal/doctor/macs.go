package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// podMACs returns our pods by the MAC address of their VLAN interface. It omits addresses that several pods have, as with the
// CNI plugin ipvlan.
func (s *Site) podMACs() map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	for _, a := range s.ownAddresses() {
		_, pod, i := s.owner(a)
		if pod == nil || i.MAC == "" {
			continue
		}
		mac := strings.ToLower(i.MAC)
		if other, known := pods[mac]; known && other != pod {
			pod = nil
		}
		pods[mac] = pod
	}
	maps.DeleteFunc(pods, func(_ string, pod *corev1.Pod) bool { return pod == nil })
	return pods
}

// sameMACs finds hosts on the VLAN that have the MAC address of one of our pods: those that answer for an address that is not
// ours, and clients of DHCP. OOOI-DHCP-009 finds VMs that are specified with it.
func (s *Site) sameMACs() []Finding {
	pods := s.podMACs()
	evidence := map[string][]string{}
	sightings := s.sightings()
	for _, a := range slices.SortedFunc(maps.Keys(sightings), netip.Addr.Compare) {
		for _, one := range sightings[a] {
			if mac := strings.ToLower(one.mac); pods[mac] != nil {
				evidence[mac] = append(evidence[mac], fmt.Sprintf("it answers ARP requests of Pod %s for %s, which is no address of the pod", one.pod.Name, a))
			}
		}
	}
	for mac, last := range s.unknownClients() {
		if pods[mac] != nil {
			evidence[mac] = append(evidence[mac], "it requested an address from DHCP at "+formatTime(last))
		}
	}
	var findings []Finding
	for _, mac := range slices.Sorted(maps.Keys(evidence)) {
		pod := pods[mac]
		findings = append(findings, failed(podRef(pod), "find the host by its MAC address, which moves between two ports in the table of the switch, or with 'kubectl get vmi -A -o yaml', and give it another one",
			"another host on the VLAN has the MAC address %s of the pod: the switch sends the packets of both to the one that sent last", mac).
			because(evidence[mac]...).of(observedComponent(componentOf(pod))))
	}
	return findings
}

// otherNetworks returns findings for VMs that request an address on the VLAN with an interface of another network, by unknown
// MAC addresses of DHCP and the evidence for each.
func (s *Site) otherNetworks(asked map[string]string) []Finding {
	var findings []Finding
	for _, u := range s.list(machines, AtControlPlane) {
		ref, served := refTo(u), s.network().Key()
		ours := s.machineInterfaces(u)
		macs := map[string]string{} // by interface
		for _, field := range [][]string{{"spec", "domain", "devices", "interfaces"}, {"status", "interfaces"}} {
			interfaces, _, _ := unstructured.NestedSlice(u.Object, field...)
			for _, i := range interfaces {
				i, _ := i.(map[string]any)
				name, _ := i["name"].(string)
				mac, _ := i["mac"].(string)
				specified, _ := i["macAddress"].(string)
				macs[name] = strings.ToLower(cmp.Or(mac, specified, macs[name]))
			}
		}
		networks, _, _ := unstructured.NestedSlice(u.Object, "spec", "networks")
		for _, n := range networks {
			n, _ := n.(map[string]any)
			name, _ := n["name"].(string)
			network, _, _ := unstructured.NestedString(n, "multus", "networkName")
			if network == "" || slices.Contains(ours, name) || asked[macs[name]] == "" {
				continue
			}
			findings = append(findings, failed(ref, fmt.Sprintf("set networkName of network %s to %s in the VM's NodePool (platform.kubevirt.additionalNetworks) or VirtualMachine, and restart it: kubectl -n %s get vmi %s -o yaml", name, served, ref.Namespace, ref.Name),
				"the VM requests an address on the VLAN with interface %s, which is on network %s: DHCP serves interfaces on network %s only", name, network, served).because(asked[macs[name]]))
		}
	}
	return findings
}
