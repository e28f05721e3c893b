package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

var nadReads = site.In(site.AtNetwork, site.NADs)

var nadExists = Check{
	Code: "OOOI-NET-001", Title: "the VMs' NetworkAttachmentDefinition exists", Reads: nadReads, Run: checkNAD,
	About: "`networkConfig.networkAttachmentDefinition` names the VLAN. New pods do not start without it; running pods are not affected.",
}

func checkNAD(s *Site) []Finding {
	switch {
	case !s.Facts.Served(site.NADs):
		return []Finding{failed(s.Network(), "install Multus", "the cluster does not serve NetworkAttachmentDefinitions")}
	case s.NAD() == nil:
		return []Finding{failed(s.Network(), "create it, or set another network (NAMESPACE/NAME) in "+s.Ref().Kind+" "+s.Ref().Name,
			"the NetworkAttachmentDefinition does not exist")}
	}
	return nil
}

var nadWithoutIPAM = Check{
	Code: "OOOI-NET-002", Title: "the VMs' NetworkAttachmentDefinition assigns no addresses", InfraOnly: true, Component: componentVMs, Reads: nadReads,
	Run: checkIPAM,
	About: "If the network assigns addresses, KubeVirt's DHCP server in the VMs' pods offers them to VMs before oooi's DHCP does. With `ipam` type `dhcp`, " +
		"or a ClusterUserDefinedNetwork with `ipam: {mode: DHCP}`, the node requests a lease before oooi's DHCP knows the VM. doctor accepts this mode of " +
		"OVN-Kubernetes only if oooi's DHCP is disabled.",
}

func checkIPAM(s *Site) []Finding {
	if s.NAD() == nil {
		return nil
	}
	switch field, err := cni.IPAM(s.NetworkConfig()); {
	case err != nil:
		return []Finding{failed(s.Network(), "correct spec.config", "%v", err).forComponent("")}
	case field == cni.DHCPIPAM && s.enabled(v1alpha1.ComponentDHCP):
		return []Finding{failed(s.Network(),
			"remove ipam (in a ClusterUserDefinedNetwork: ipam: {mode: Disabled}), and restart the VMs; they request leases themselves",
			"spec.config has %s: the node requests a lease for each VM's pod before the VM's MAC address is known, and oooi's DHCP does not reply to unknown clients, "+
				"so VMs do not start", field)}
	case field == cni.DHCPIPAM && cni.IsOVN(s.NetworkConfig()): // another DHCP server assigns the addresses; KubeVirt does not see them
	case field != "":
		return []Finding{failed(s.Network(), "remove the field, and restart the VMs",
			"spec.config assigns addresses in field %s: KubeVirt's DHCP server offers them to VMs before oooi's DHCP does", field)}
	}
	return nil
}

var podsOnNetwork = Check{
	Code: "OOOI-NET-009", Title: "oooi's pods are on the VMs' network", Run: checkPodNetworks,
	Reads: slices.Concat(nadReads, site.In(site.AtInfra, site.Pods, site.NADs)),
	About: "setup attaches the pods to the network in the VMs' NetworkAttachmentDefinition. If its configuration changes later, new VMs are on " +
		"another network than the pods until setup runs again and moves the pods.",
}

func checkPodNetworks(s *Site) []Finding {
	vms := s.Networks[s.Network().Key()]
	if vms == "" {
		return nil
	}
	for _, p := range s.componentPods() {
		interfaces, _ := read.PodInterfaces(p) // OOOI-NET-003 reports an error
		for _, i := range interfaces {
			if pods := s.Networks[i.Network]; pods != "" && pods != vms {
				return []Finding{failed(s.Network(), "undo the change of spec.config; only if the VMs use the changed network, run 'kubectl oooi setup -f FILE' with "+
					"the Infra's file, which moves the pods", "the configuration was changed after setup: spec.config now describes %s, but oooi's pods are on %s", vms, pods).
					withEvidence(fmt.Sprintf("NetworkAttachmentDefinition %s attaches pod %s", i.Network, p.Name))}
			}
		}
	}
	return nil
}

var networkAllowed = Check{
	Code: "OOOI-NET-008", Title: "Multus allows VMs to use their networks", InfraOnly: true, Component: componentVMs, Run: checkAllowed,
	Reads: slices.Concat(site.In(site.AtHosted, site.NodePools), site.In(site.AtControlPlane, site.VMIs), site.In(site.Everywhere, site.Constraints),
		site.Optional(site.In(site.AtMultus, site.ConfigMaps))),
	About: "With `namespaceIsolation`, as on OpenShift, Multus rejects pods that use a NetworkAttachmentDefinition in another namespace. " +
		"A ClusterUserDefinedNetwork creates one in each selected namespace; all of them are the same network.",
}

func checkAllowed(s *Site) []Finding {
	if s.Cluster == nil {
		return nil
	}
	isolation := model.OpenShiftIsolation
	if !s.Facts.Served(site.Constraints) {
		isolation = read.Isolation(site.All[corev1.ConfigMap](s.Site, site.ConfigMaps, site.AtMultus))
	}
	var refs []model.AttachmentRef
	for _, u := range slices.Concat(s.nodePools(), s.List(site.VMIs, site.AtControlPlane)) {
		refs = append(refs, read.AttachmentRefs(u, s.Cluster.ControlPlaneNamespace)...)
	}
	var findings []Finding
	reported := map[string]int{} // findings by network
	for _, r := range isolation.Rejected(refs) {
		if at, found := reported[r.Attachment]; found {
			findings[at] = findings[at].withEvidence("so does " + r.Object.String())
			continue
		}
		reported[r.Attachment] = len(findings)
		findings = append(findings, failed(r.Object, r.Remedy(), "%s", r.Rejection()))
	}
	return findings
}

var networkSuitable = Check{
	Code: "OOOI-NET-005", Title: "the VMs' network delivers the VMs' frames", InfraOnly: true, Component: componentVMs, Run: checkSuitable,
	Reads: slices.Concat(nadReads, site.Optional(site.In(site.AtControlPlane, site.VMIs, site.Pods))),
	About: "macvlan and ipvlan deliver no frames to VMs. With `macspoofchk`, and on OVN-Kubernetes, the network drops a VM's frames if the VM's MAC " +
		"address differs from its pod's, as after a live migration of a VM without `macAddress`.",
}

// unsuitableTypes are CNI plugins whose networks deliver no frames to a VM that KubeVirt bridges to them.
var unsuitableTypes = []string{"macvlan", "ipvlan"}

func checkSuitable(s *Site) []Finding {
	plugins, err := cni.Plugins(s.NetworkConfig())
	if err != nil {
		return nil // reported by OOOI-NET-002
	}
	var findings []Finding
	if kind, _ := plugins[0]["type"].(string); slices.Contains(unsuitableTypes, kind) {
		findings = append(findings, failed(s.Network(), "use a bridge (type cnv-bridge or bridge) or a localnet of OVN-Kubernetes",
			"spec.config has type %s: such a network delivers no frames to a VM with its own MAC address", kind))
	}
	network := s.Network().Key()
	for _, u := range s.List(site.VMIs, site.AtControlPlane) {
		if hasEnded(u) || len(read.WithoutMAC(u, s.Networks, network)) == 0 {
			continue
		}
		if nad := s.attachmentOf(u, cni.ChecksMAC); nad != nil {
			findings = append(findings, warned(*nad, "remove macspoofchk from spec.config, or set macAddress in the VMs' specs",
				"spec.config has macspoofchk, and VM %s/%s has no macAddress in its spec: after a migration, the network drops the VM's "+
					"frames", u.GetNamespace(), u.GetName()))
			break
		}
	}
	return append(findings, checkMigrated(s)...)
}

// checkMigrated finds VMs whose MAC address differs from their pod's, if the network drops the frames of such VMs.
func checkMigrated(s *Site) []Finding {
	// OVN-Kubernetes sets the port security of a logical switch port to the MAC address of the pod.
	drops := func(config string) bool { return cni.ChecksMAC(config) || cni.IsOVN(config) }
	var findings []Finding
	network := s.Network().Key()
	for _, u := range s.List(site.VMIs, site.AtControlPlane) {
		own := read.MachineMACs(u, s.Networks, network)
		node, _, _ := unstructured.NestedString(u.Object, "status", "nodeName")
		if len(own) == 0 || s.attachmentOf(u, drops) == nil {
			continue
		}
		for _, p := range site.All[corev1.Pod](s.Site, site.Pods, site.AtControlPlane) {
			if p.Labels[site.LabelCreatedBy] != string(u.GetUID()) || p.Spec.NodeName != node || p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
				continue
			}
			interfaces, _ := read.PodInterfaces(p)
			for _, i := range interfaces {
				if i.MAC == "" || !s.Networks.Same(i.Network, network) || slices.ContainsFunc(own, func(mac string) bool { return strings.EqualFold(mac, i.MAC) }) {
					continue
				}
				findings = append(findings, failed(site.RefTo(u), "restart the VM, set macAddress in its spec, or remove macspoofchk from the network's configuration",
					"the VM has MAC address %s on the VLAN, but its pod %s has %s, as after a migration of a VM without macAddress: the network drops the VM's "+
						"frames", own[0], p.Name, i.MAC))
			}
		}
	}
	return findings
}

// attachmentOf returns the first NetworkAttachmentDefinition by which a VM is on the network of the Infra and whose configuration
// matches; nil if there is none.
func (s *Site) attachmentOf(u *unstructured.Unstructured, matches func(config string) bool) *model.Ref {
	for _, ref := range read.MachineAttachments(u, s.Networks, s.Network().Key()) {
		attachment := model.ParseRef(site.NADs.Kind, ref)
		for _, nad := range s.Facts.List(site.NADs, attachment.Namespace) {
			if config, _, _ := unstructured.NestedString(nad.Object, "spec", "config"); nad.GetName() == attachment.Name && matches(config) {
				return &attachment
			}
		}
	}
	return nil
}

var addressesUnique = Check{
	Code: "OOOI-NET-004", Title: "no duplicate addresses on the VLAN", InfraOnly: true, Component: componentVMs, Run: checkAddresses,
	Reads: site.In(site.AtControlPlane, site.VMIs),
	About: "VMs report their addresses in their status. A VM must not use the address of another VM, the gateway or a component.",
}

func checkAddresses(s *Site) []Finding {
	owner := map[netip.Addr]string{}
	if s.Model != nil && s.Model.Gateway().IsValid() {
		owner[s.Model.Gateway()] = "the gateway"
	}
	for _, c := range s.components() {
		for _, a := range c.addresses {
			owner[a] = c.name + " of the Infra"
		}
	}
	var findings []Finding
	for _, u := range s.List(site.VMIs, site.AtControlPlane) {
		ref := site.RefTo(u)
		for _, a := range read.MachineAddresses(u, s.Networks, s.Network().Key()) {
			if other, ok := owner[a]; ok && other != ref.String() {
				findings = append(findings, failed(ref, "find the source of the address: a setting in the VM, or another DHCP "+
					"server", "the VM has address %s, which %s also has", a, other))
				continue
			}
			owner[a] = ref.String()
		}
	}
	return findings
}

// hasEnded reports whether a VM no longer runs or is being deleted.
func hasEnded(u *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	return phase == "Succeeded" || phase == "Failed" || u.GetDeletionTimestamp() != nil
}

// mtu returns the MTU of the VMs' network: the MTU of the pods' interfaces or, if unknown, the MTU in the network's configuration; 0 if
// neither is known.
func (s *Site) mtu() int {
	mtu := 0
	for _, a := range s.Responses(site.AtInfra) {
		if a.Report == nil || a.Report.VLAN == nil {
			continue
		}
		for _, i := range a.Report.VLAN.Interfaces {
			mtu = max(mtu, i.MTU)
		}
	}
	if mtu == 0 {
		mtu = cni.MTU(s.NetworkConfig())
	}
	return mtu
}
