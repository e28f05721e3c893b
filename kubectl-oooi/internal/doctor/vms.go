package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

var vmReads = slices.Concat(site.In(site.AtControlPlane, site.VMIs), site.In(site.AtInfra, site.Leases))

// leaseList has the DHCP leases of the Infra.
type leaseList []*leases.Lease

// leaseOf returns the bound lease of an interface of a VM; nil if there is none.
func (s *Site) leaseOf(vm model.Ref, name string) *leases.Lease {
	if s.leases == nil {
		s.leases = &leaseList{}
		for _, o := range site.All[coordinationv1.Lease](s.Site, site.Leases, site.AtInfra) {
			if _, ok := o.Labels[leases.PoolLabel]; !ok {
				continue
			}
			if l, err := leases.Read(o, s.Facts.Taken); err == nil && l != nil && l.Infra == s.Infra.Name {
				*s.leases = append(*s.leases, l)
			}
		}
	}
	for _, l := range *s.leases {
		if l.State == dhcplease.StateBound && l.VM == vm.Key() && l.Interface == name {
			return l
		}
	}
	return nil
}

// vmInterfaces returns the names of a VM's interfaces on the network of the Infra.
func (s *Site) vmInterfaces(u *unstructured.Unstructured) []string {
	return read.MachineInterfaces(u, s.Networks, s.Network().Key())
}

// leaseGracePeriod is how long a VM may run without a lease.
const leaseGracePeriod = 5 * time.Minute

// runningSince returns when a VM reached phase Running, or its creation time if its status lacks that time.
func runningSince(u *unstructured.Unstructured) time.Time {
	since := u.GetCreationTimestamp().Time
	phases, _, _ := unstructured.NestedSlice(u.Object, "status", "phaseTransitionTimestamps")
	for _, p := range phases {
		p, _ := p.(map[string]any)
		at, _ := p["phaseTransitionTimestamp"].(string)
		if t, err := time.Parse(time.RFC3339, at); err == nil && p["phase"] == "Running" {
			since = t
		}
	}
	return since
}

// selectsByLabel reports whether DHCP selects VMs by the label of the hosted cluster, rather than by the Infra's VM selector.
func (s *Site) selectsByLabel() bool {
	dhcp := s.Infra.Spec.InfraComponents.DHCP
	return s.enabled(v1alpha1.ComponentDHCP) && dhcp.VMSelector == nil && s.Cluster != nil && s.Cluster.InfraID != ""
}

// lacksLabel reports whether DHCP does not serve a VM because of its label.
func (s *Site) lacksLabel(u *unstructured.Unstructured) bool {
	return s.selectsByLabel() && u.GetLabels()[objects.LabelInfraID] != s.Cluster.InfraID
}

var vmsKnown = Check{
	Code: "OOOI-DHCP-011", Title: "VMs on the network have the label of the hosted cluster", InfraOnly: true, Component: componentVMs, Reads: vmReads,
	Run:   checkLabels,
	About: "DHCP serves VMs with the label of the hosted cluster's VMs, or VMs that `infraComponents.dhcp.vmSelector` selects.",
}

func checkLabels(s *Site) []Finding {
	var findings []Finding
	for _, u := range s.List(site.VMIs, site.AtControlPlane) {
		if hasEnded(u) || !s.lacksLabel(u) {
			continue
		}
		for _, name := range s.vmInterfaces(u) {
			ref, label := site.RefTo(u), objects.LabelInfraID+"="+s.Cluster.InfraID
			f := failed(ref, fmt.Sprintf("if the VM is a node of the hosted cluster, restore the label: kubectl -n %s label vmi %s --overwrite %s; also "+
				"restore it in spec.template.metadata.labels of its VirtualMachine, or the VM loses it at the next restart", ref.Namespace, ref.Name, label),
				"DHCP does not serve interface %s of the VM, which lacks the label of the hosted cluster's VMs, %s", name, label)
			if l := s.leaseOf(ref, name); l != nil {
				f = f.withEvidence(fmt.Sprintf("the VM cannot renew its lease of %s", l.Address))
			}
			findings = append(findings, f)
		}
	}
	return findings
}

var vmsLeased = problemCheck(Check{
	Code: "OOOI-DHCP-005", Title: "every VM on the network has a lease and renews it", InfraOnly: true, Component: componentVMs, Reads: vmReads, Run: checkLeases,
	About: "A VM that has no lease after five minutes, or does not renew it, has lost its connection to the VLAN, hangs, configures its address without " +
		"DHCP, or uses another MAC address than in its specification.",
})

func checkLeases(s *Site) []Finding {
	if !s.enabled(v1alpha1.ComponentDHCP) || s.Infra.Spec.InfraComponents.DHCP.VMSelector != nil {
		return nil
	}
	var findings []Finding
	for _, u := range s.List(site.VMIs, site.AtControlPlane) {
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		if phase != "Running" || hasEnded(u) || s.lacksLabel(u) || s.Facts.Taken.Sub(runningSince(u)) < leaseGracePeriod {
			continue
		}
		ref := site.RefTo(u)
		for _, name := range s.vmInterfaces(u) {
			if s.leaseOf(ref, name) != nil || s.isLost(ref) {
				continue
			}
			f := failed(ref, fmt.Sprintf("check whether the VM's DHCP requests arrive: kubectl -n %s logs -l "+
				"%s=%s,%s=dhcp", s.Infra.Namespace, v1alpha1.LabelInfra, s.Infra.Name, v1alpha1.LabelComponent),
				"the VM runs on network %s since %s, but its interface %s has no DHCP lease", s.Network().Key(), formatTime(runningSince(u)), name)
			if reserved := u.GetAnnotations()[v1alpha1.AnnotationDHCPAddresses]; reserved != "" {
				f = f.withEvidence("annotation " + v1alpha1.AnnotationDHCPAddresses + ": " + reserved)
			}
			findings = append(findings, f)
		}
	}
	return findings
}

// isLost reports whether OOOI-DHCP-016 reports that the VM's Lease was deleted.
func (s *Site) isLost(vm model.Ref) bool {
	return slices.ContainsFunc(s.problemFindings("OOOI-DHCP-016"), func(f Finding) bool { return f.Object == vm })
}

// checkOtherMACs finds the VMs of MAC addresses that DHCP does not know: VMs that request an address with an interface of another
// network, or whose guest uses another MAC address than their specification.
func checkOtherMACs(s *Site) []Finding {
	var findings []Finding
	for _, u := range s.List(site.VMIs, site.AtControlPlane) {
		ref, onNetwork := site.RefTo(u), s.vmInterfaces(u)
		for _, i := range interfacesOf(u) {
			switch {
			case i.mac == "" || hasEnded(u) || !s.isUnknown(i.mac):
			case i.network != "" && !slices.Contains(onNetwork, i.name):
				findings = append(findings, failed(ref, fmt.Sprintf("set networkName of the network to %s in the VM's NodePool "+
					"(platform.kubevirt.additionalNetworks) or VirtualMachine, and restart it", s.Network().Key()),
					"the VM requests an address on the VLAN with interface %s, which is on network %s: DHCP serves only interfaces on network "+
						"%s", i.name, i.network, s.Network().Key()))
			case i.fromGuest:
				findings = append(findings, failed(ref, "set the interface's MAC address in the guest to the address in the VM's specification, or set macAddress in the "+
					"VM to the guest's address and restart the VM",
					"the guest uses MAC address %s on the VLAN, but no interface of the VM has this address: DHCP does not reply to it", i.mac))
			}
		}
	}
	return findings
}

// vmInterface is an interface of a VM: by its specification, or as its guest agent reports it.
type vmInterface struct {
	name, network, mac string
	fromGuest          bool
}

// interfacesOf returns the interfaces of a VM, with MAC addresses in lower case.
func interfacesOf(u *unstructured.Unstructured) []vmInterface {
	networks := map[string]string{}
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "networks")
	for _, n := range list {
		n, _ := n.(map[string]any)
		name, _ := n["name"].(string)
		networks[name], _, _ = unstructured.NestedString(n, "multus", "networkName")
	}
	var all []vmInterface
	for _, field := range [][]string{{"spec", "domain", "devices", "interfaces"}, {"status", "interfaces"}} {
		list, _, _ := unstructured.NestedSlice(u.Object, field...)
		for _, i := range list {
			i, _ := i.(map[string]any)
			name, _ := i["name"].(string)
			mac, _ := i["mac"].(string)
			specified, _ := i["macAddress"].(string)
			source, _ := i["infoSource"].(string)
			all = append(all, vmInterface{name, networks[name], strings.ToLower(cmp.Or(mac, specified)), name == "" && strings.Contains(source, "guest-agent")})
		}
	}
	return all
}
