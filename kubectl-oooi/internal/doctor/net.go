package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

func init() {
	register(
		Check{
			Code: "OOOI-NET-001", Title: "the VMs' NetworkAttachmentDefinition exists", Reads: in(AtNetwork, attachments),
			Run: func(s *Site) []Finding {
				ref := s.network()
				switch {
				case !s.served(attachments):
					return []Finding{failed(ref, "install Multus", "the cluster does not serve NetworkAttachmentDefinitions")}
				case s.attachment() == nil:
					return []Finding{failed(ref, "create it, or set spec.networkConfig.networkAttachmentDefinition of the Infra to another one (NAMESPACE/NAME)", "the NetworkAttachmentDefinition does not exist")}
				}
				return nil
			},
		},
		Check{
			Code: "OOOI-NET-002", Title: "the VMs' NetworkAttachmentDefinition assigns no addresses", Needs: []string{"OOOI-NET-001"}, Reads: in(AtNetwork, attachments),
			Run: func(s *Site) []Finding {
				config, _, _ := unstructured.NestedString(s.attachment().Object, "spec", "config")
				field, err := cni.IPAM(config)
				switch {
				case err != nil:
					return []Finding{failed(s.network(), "correct spec.config", "%v", err)}
				case field != "":
					return []Finding{failed(s.network(), "remove the field, and restart the VMs", "spec.config assigns addresses in field %s: KubeVirt offers them to VMs from a DHCP server of its own, before ours", field)}
				}
				return nil
			},
		},
		Check{
			Code: "OOOI-NET-003", Title: "our pods are on the VLAN, and have their addresses", Needs: []string{"OOOI-NET-001", "OOOI-POD-001"}, After: []string{"OOOI-POD-002"}, Reads: slices.Concat(in(AtInfra, pods, attachments), in(AtNetwork, attachments)),
			Run: func(s *Site) []Finding { return append(checkPodAddresses(s), checkPodNetworks(s)...) },
		},
		Check{
			Code: "OOOI-NET-004", Title: "no duplicate addresses on the VLAN", Needs: []string{"OOOI-HC-001", "OOOI-INF-001"}, Reads: in(AtControlPlane, machines),
			Run: checkDuplicateAddresses,
		},
		Check{
			Code: "OOOI-NET-005", Title: "the VMs' network is suitable for VMs", Needs: []string{"OOOI-NET-002"},
			Reads: slices.Concat(in(AtNetwork, attachments), in(AtInfra, infras), optional(slices.Concat(in(AtControlPlane, machines, pods), pagesIn(AtInfra, daemonMetrics...)))),
			Run:   func(s *Site) []Finding { return append(checkNetworkType(s), checkMigratedVMs(s)...) },
		},
		Check{
			Code: "OOOI-NET-008", Title: "Multus allows VMs to use their networks", Needs: []string{"OOOI-HC-001"},
			Reads: slices.Concat(in(AtHosted, nodePools), in(AtControlPlane, machines), in(Everywhere, constraints), optional(in(AtMultus, configMaps))),
			Run:   checkRejectedNetworks,
		},
	)
}

// labelCreatedBy is the label of KubeVirt's pods with the UID of their VirtualMachineInstance.
const labelCreatedBy = "kubevirt.io/created-by"

// checkMigratedVMs finds VMs with another MAC address than their pods have, as after a migration of a VM without macAddress,
// if the network drops the frames of such VMs.
func checkMigratedVMs(s *Site) []Finding {
	// OVN-Kubernetes sets the port security of a logical switch port to the MAC address of the pod.
	drops := func(config string) bool { return cni.ChecksMAC(config) || cni.IsOVN(config) }
	var findings []Finding
	launchers := all[corev1.Pod](s, pods, AtControlPlane)
	for _, u := range s.list(machines, AtControlPlane) {
		if s.attachmentOf(u, drops) == nil {
			continue
		}
		own := read.MachineMACs(u, s.networks, s.network().Key())
		node, _, _ := unstructured.NestedString(u.Object, "status", "nodeName")
		for _, p := range launchers {
			if p.Labels[labelCreatedBy] != string(u.GetUID()) || p.Spec.NodeName != node || p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
				continue
			}
			interfaces, _ := read.PodInterfaces(p)
			for _, i := range interfaces {
				if len(own) > 0 && i.MAC != "" && s.networks.Same(i.Network, s.network().Key()) && !slices.ContainsFunc(own, func(mac string) bool { return strings.EqualFold(mac, i.MAC) }) {
					findings = append(findings, failed(refTo(u), "restart the VM, set macAddress in its spec, or remove macspoofchk from the network's configuration",
						"the VM has MAC address %s on the VLAN, and its pod %s has %s, as after a migration of a VM without macAddress in its spec: the network drops the frames of the VM", own[0], p.Name, i.MAC))
				}
			}
		}
	}
	return findings
}

// attachmentOf returns the first NetworkAttachmentDefinition by which a VM is on the network of the Infra and whose
// configuration has a property; nil if there is none.
func (s *Site) attachmentOf(u *unstructured.Unstructured, has func(config string) bool) *model.Ref {
	for _, ref := range read.MachineAttachments(u, s.networks, s.network().Key()) {
		namespace, name, _ := strings.Cut(ref, "/")
		for _, nad := range s.facts.list(attachments, namespace) {
			if config, _, _ := unstructured.NestedString(nad.Object, "spec", "config"); nad.GetName() == name && has(config) {
				return &model.Ref{Kind: attachments.Kind, Namespace: namespace, Name: name}
			}
		}
	}
	return nil
}

// checkRejectedNetworks finds NodePools and VMs whose pods Multus rejects.
func checkRejectedNetworks(s *Site) []Finding {
	isolation := model.OpenShiftIsolation
	if !s.served(constraints) {
		isolation = read.Isolation(all[corev1.ConfigMap](s, configMaps, AtMultus))
	}
	var refs []model.AttachmentRef
	for _, u := range slices.Concat(s.nodePools(), s.list(machines, AtControlPlane)) {
		refs = append(refs, read.AttachmentRefs(u, s.Cluster.ControlPlaneNamespace)...)
	}
	var findings []Finding
	reported := map[string]int{} // findings by network, of its first object
	for _, r := range isolation.Rejected(refs) {
		if at, found := reported[r.Attachment]; found {
			findings[at] = findings[at].because("so does " + r.Object.String())
			continue
		}
		reported[r.Attachment] = len(findings)
		findings = append(findings, failed(r.Object, r.Remedy(), "%s", r.Rejection()))
	}
	return findings
}

// checkDuplicateAddresses finds addresses, as VMs report them, that two VMs have, or a VM and the gateway or
// one of our components.
func checkDuplicateAddresses(s *Site) []Finding {
	owner := map[netip.Addr]string{}
	if gateway := s.Model.Gateway(); gateway.IsValid() {
		owner[gateway] = "the gateway"
	}
	for _, c := range s.components() {
		for _, a := range c.addresses {
			owner[a] = c.name + " of the Infra"
		}
	}
	var findings []Finding
	for _, u := range s.list(machines, AtControlPlane) {
		ref := refTo(u)
		for _, a := range read.MachineAddresses(u, s.networks, s.network().Key()) {
			if other, ok := owner[a]; ok && other != ref.String() {
				findings = append(findings, failed(ref, "find the source of the address: a setting in the VM, or another DHCP server", "the VM has address %s, which %s also has", a, other))
				continue
			}
			owner[a] = ref.String()
		}
	}
	return findings
}

func (s *Site) network() model.Ref {
	nad := s.Infra.Spec.NetworkConfig.NetworkAttachment(s.Infra.Namespace)
	return model.Ref{Kind: attachments.Kind, Namespace: nad.Namespace, Name: nad.Name}
}

// attachment returns the VMs' NetworkAttachmentDefinition, nil if it does not exist.
func (s *Site) attachment() *unstructured.Unstructured {
	list := s.list(attachments, AtNetwork)
	if at := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool { return u.GetName() == s.network().Name }); at >= 0 {
		return list[at]
	}
	return nil
}

// checkPodAddresses finds pods to which Multus has not assigned a VLAN address of their component.
func checkPodAddresses(s *Site) []Finding {
	var findings []Finding
	for _, component := range s.components() {
		wanted := component.addresses
		for _, p := range s.pods(component.name) {
			has, err := read.PodAddresses(p)
			ref := podRef(p)
			if addsItsOwn(p) {
				continue // Multus does not report such an address; OOOI-PRX-015 checks 'xdsd hold', which adds it
			}
			switch {
			case err != nil:
				findings = append(findings, failed(ref, "see Multus' log on node "+p.Spec.NodeName, "%v", err).of(component.name))
			case !slices.ContainsFunc(has, func(a netip.Addr) bool { return slices.Contains(wanted, a) }):
				findings = append(findings, failed(ref, "see Multus' log on node "+p.Spec.NodeName+", and check that the nodes have the CNI plugins static and sbr", "the pod does not have its VLAN address").
					because(fmt.Sprintf("expected one of %v, found %v", wanted, has)).of(component.name))
			}
		}
	}
	return findings
}

// checkPodNetworks finds pods that were created after their NetworkAttachmentDefinition was edited, so that they are connected
// to another network than VMs.
func checkPodNetworks(s *Site) []Finding {
	var findings []Finding
	drifts := s.facts.drifts[s.key()]
	restarts := s.restartedPods(drifts)
	for i := range drifts {
		d := &drifts[i]
		started := s.startedSince(d)
		has, wanted := s.editedLink(d)
		if len(started) == 0 || has == wanted {
			continue
		}
		_, remedy := s.cause(d, restarts[d.Component])
		f := failed(d.Object, remedy, "the pods that were created since it was edited are on another network than the VMs: %s, not %s", has, wanted)
		for _, one := range d.Differences {
			f = f.because(one.String())
		}
		findings = append(findings, f.because("has the edited network: Pod "+strings.Join(started, ", ")).of(d.Component))
	}
	return findings
}

// editedLink returns the layer 2 networks of a component's NetworkAttachmentDefinition and of that of the VMs; empty for
// other objects, and if one is unknown.
func (s *Site) editedLink(d *drift) (has, wanted string) {
	vms := s.attachment()
	at := slices.IndexFunc(s.facts.list(attachments, d.Object.Namespace), func(u *unstructured.Unstructured) bool { return u.GetName() == d.Object.Name })
	if d.Object.Kind != attachments.Kind || vms == nil || at < 0 {
		return "", ""
	}
	link := func(u *unstructured.Unstructured) string {
		config, _, _ := unstructured.NestedString(u.Object, "spec", "config")
		return cni.Identity(config)
	}
	has, wanted = link(s.facts.list(attachments, d.Object.Namespace)[at]), link(vms)
	if has == "" || wanted == "" {
		return "", ""
	}
	return has, wanted
}

// addsItsOwn reports whether 'xdsd hold' adds the pod's address, because the pod's network assigns none.
func addsItsOwn(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == holderState.container() && slices.Contains(c.Command, ownFlag)
	})
}

// ownFlag is the flag with which 'xdsd hold' adds the pod's own address.
const ownFlag = "--own"

// unsuitableTypes are CNI plugins whose networks deliver no frames to a VM that KubeVirt bridges to them.
var unsuitableTypes = []string{"macvlan", "ipvlan"}

// checkNetworkType finds a network that is unsuitable for VMs or for their migration, and a DHCP option that sets another
// MTU than the network's.
func checkNetworkType(s *Site) []Finding {
	config, _, _ := unstructured.NestedString(s.attachment().Object, "spec", "config")
	plugins, err := cni.Plugins(config)
	if err != nil {
		return nil // reported by OOOI-NET-002
	}
	var findings []Finding
	if kind, _ := plugins[0]["type"].(string); slices.Contains(unsuitableTypes, kind) {
		findings = append(findings, failed(s.network(), "use a bridge (type cnv-bridge or bridge) or a localnet of OVN-Kubernetes",
			"spec.config has type %s: such a network delivers no frames to a VM with its own MAC address", kind))
	}
	for _, u := range s.list(machines, AtControlPlane) {
		if hasEnded(u) || len(read.WithoutMAC(u, s.networks, s.network().Key())) == 0 {
			continue
		}
		if nad := s.attachmentOf(u, cni.ChecksMAC); nad != nil {
			findings = append(findings, warned(*nad, "remove macspoofchk from spec.config, or set macAddress in the VMs' specs",
				"spec.config has macspoofchk, and VM %s/%s has no macAddress in its spec: a migrated VM keeps its MAC address, but its new pod gets another one, so that the network drops the VM's frames", u.GetNamespace(), u.GetName()))
			break
		}
	}
	if dhcp, mtu := s.Infra.Spec.InfraComponents.DHCP, s.MTU(); dhcp != nil && mtu > 0 {
		const option = 26 // RFC 2132, 5.1
		for _, o := range dhcp.Options {
			if (o.Code != nil && *o.Code == option || o.Name == "mtu" || o.Name == "interface-mtu") && o.Value != fmt.Sprint(mtu) {
				findings = append(findings, failed(s.ref(), "remove the option, or set it to the MTU of the network", "infraComponents.dhcp.options sets MTU %s, but NetworkAttachmentDefinition %s has MTU %d", o.Value, s.network().Key(), mtu))
			}
		}
	}
	return findings
}
