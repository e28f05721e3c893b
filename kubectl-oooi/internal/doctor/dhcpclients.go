package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
)

// runningSince returns when a VM reached phase Running, or its creation time if it does not report that.
func runningSince(u *unstructured.Unstructured) time.Time {
	since := u.GetCreationTimestamp().Time
	phases, _, _ := unstructured.NestedSlice(u.Object, "status", "phaseTransitionTimestamps")
	for _, p := range phases {
		p, _ := p.(map[string]any)
		if at, _ := p["phaseTransitionTimestamp"].(string); p["phase"] == "Running" && at != "" {
			if t, err := time.Parse(time.RFC3339, at); err == nil {
				since = t
			}
		}
	}
	return since
}

// servedVMs returns the VMs on the network that DHCP should have served by now: those that have run for longer than
// leaseGracePeriod. It returns none if the Infra has a VM selector, which doctor does not evaluate.
func (s *Site) servedVMs() []*unstructured.Unstructured {
	if dhcp := s.Infra.Spec.InfraComponents.DHCP; dhcp != nil && dhcp.VMSelector != nil {
		return nil
	}
	return slices.DeleteFunc(s.list(machines, AtControlPlane), func(u *unstructured.Unstructured) bool {
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		return phase != "Running" || u.GetDeletionTimestamp() != nil || len(s.machineInterfaces(u)) == 0 || s.facts.Taken.Sub(runningSince(u)) < leaseGracePeriod
	})
}

// machineRef returns the VirtualMachineInstance of "namespace/name" or "namespace/name/interface".
func machineRef(name string) model.Ref {
	parts := strings.SplitN(name, "/", 3)
	ref := model.Ref{Kind: machines.Kind, Namespace: parts[0]}
	if len(parts) > 1 {
		ref.Name = parts[1]
	}
	return ref
}

// checkKnownVMs finds VMs on the network with an interface that no DHCP replica knows: those that DHCP should have served by
// now, those that have requested an address, and those that have a lease and no longer the label of the hosted cluster's VMs.
func checkKnownVMs(s *Site) []Finding {
	reports := states[dhcpReport](s, dhcpState, AtInfra)
	known := map[string]bool{}
	for _, d := range reports {
		if d.value.Kubevirt == nil {
			return nil
		}
		for _, c := range d.value.Kubevirt.Clients {
			known[c.Interface] = true
		}
		for _, owners := range d.value.Kubevirt.Duplicates { // reported by OOOI-DHCP-009
			for _, o := range owners {
				known[o] = true
			}
		}
	}
	if len(reports) == 0 {
		return nil
	}
	var findings []Finding
	served, macs, unknown := s.servedVMs(), s.vmMACs(), s.unknownClients()
	list, _ := s.leases()
	for _, u := range s.list(machines, AtControlPlane) {
		for _, i := range s.machineInterfaces(u) {
			ref, excluded := refTo(u), s.lacksLabel(u)
			last := unknown[macs[ref.Key()+"/"+i]]
			lease := slices.IndexFunc(list, func(l *leases.Lease) bool {
				return l.State == dhcplease.StateBound && l.VM == ref.Key() && l.Interface == i
			})
			if known[ref.Key()+"/"+i] || last.IsZero() && !slices.Contains(served, u) && (lease < 0 || !excluded) || hasEnded(u) {
				continue
			}
			f := failed(ref, "if the VM is a node of the hosted cluster, check its labels and its MAC address: kubectl -n "+ref.Namespace+" get vmi "+ref.Name+" -o yaml; infraComponents.dhcp.vmSelector of the Infra selects the VMs",
				"DHCP does not know interface %s of the VM, and does not reply to its requests", i)
			if excluded {
				label := objects.LabelInfraID + "=" + s.Cluster.InfraID
				f.Message += ": the VM lacks the label of the hosted cluster's VMs, " + label
				f.Remedy = fmt.Sprintf("if the VM is a node of the hosted cluster, restore the label: kubectl -n %s label vmi %s --overwrite %s; if spec.template.metadata.labels of its VirtualMachine lacks it, too, the VM loses it again when it restarts", ref.Namespace, ref.Name, label)
			}
			f = f.because("label " + objects.LabelInfraID + ": " + u.GetLabels()[objects.LabelInfraID])
			if lease >= 0 {
				f = f.because(fmt.Sprintf("the VM has a lease of %s, which it cannot renew", list[lease].Address))
			}
			if !last.IsZero() {
				f = f.because(fmt.Sprintf("its MAC address %s sent its last request at %s", macs[ref.Key()+"/"+i], formatTime(last)))
			}
			findings = append(findings, f)
		}
	}
	return findings
}

// lacksLabel reports whether DHCP does not serve a VM because of its labels. It assumes that it does if the Infra has a VM
// selector, which doctor does not evaluate.
func (s *Site) lacksLabel(u *unstructured.Unstructured) bool {
	if dhcp := s.Infra.Spec.InfraComponents.DHCP; dhcp != nil && dhcp.VMSelector != nil {
		return false
	}
	return s.Cluster != nil && s.Cluster.InfraID != "" && u.GetLabels()[objects.LabelInfraID] != s.Cluster.InfraID
}

// hasEnded reports whether a VM no longer runs or is being deleted.
func hasEnded(u *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	return phase == "Succeeded" || phase == "Failed" || u.GetDeletionTimestamp() != nil
}

// maxUnknownAge is how long an unknown MAC address is reported after its last request. A client without an address repeats
// its request at least this often.
const maxUnknownAge = maxRetryInterval

// unknownClients returns the times of the last requests of clients that DHCP does not know, by MAC address.
func (s *Site) unknownClients() map[string]time.Time {
	unknown := map[string]time.Time{}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		if d.value.Kubevirt == nil {
			continue
		}
		for _, c := range d.value.Kubevirt.Unknown {
			if s.facts.Taken.Sub(c.Last) <= maxUnknownAge && c.Last.After(unknown[c.MAC]) {
				unknown[c.MAC] = c.Last
			}
		}
	}
	return unknown
}

// checkOtherMACs finds VMs that use another MAC address on the VLAN than their specification has, so that DHCP does not
// reply. Their status proves it if a guest agent reports the interfaces. Otherwise the VM has no lease, and an unknown MAC
// address requests one.
func checkOtherMACs(s *Site) []Finding {
	unknown := s.unknownClients()
	known := map[string]string{} // MAC addresses that DHCP expects, by "namespace/vm" of the instance
	for mac, vm := range s.vmInterfaces() {
		known[vm] = mac
	}
	if len(unknown) == 0 {
		return nil
	}
	asked := map[string]string{} // evidence
	for mac, last := range unknown {
		asked[mac] = fmt.Sprintf("MAC address %s, which DHCP does not know, sent its last request at %s", mac, formatTime(last))
	}
	list, _ := s.leases()
	served := s.servedVMs()
	findings := s.otherNetworks(asked)
	for _, u := range s.list(machines, AtControlPlane) {
		for _, name := range s.machineInterfaces(u) {
			ref := refTo(u)
			mac := known[ref.Key()+"/"+name]
			if mac == "" {
				continue // OOOI-DHCP-011
			}
			remedy := fmt.Sprintf("set the interface's MAC address in the guest to %s, or set macAddress in the VM to that of the guest and restart it: kubectl -n %s get vmi %s -o yaml", mac, ref.Namespace, ref.Name)
			if other := guestMAC(u, name, mac); other != "" && !unknown[other].IsZero() {
				findings = append(findings, failed(ref, remedy, "the guest uses MAC address %s on the VLAN, but interface %s of the VM has %s: DHCP does not reply to it", other, name, mac).
					because("status.interfaces: the guest agent reports "+other+", and not "+mac, asked[other]))
				continue
			}
			leased := slices.ContainsFunc(list, func(l *leases.Lease) bool { return l.VM == ref.Key() })
			if leased || !slices.Contains(served, u) {
				continue
			}
			f := failed(ref, remedy, "the VM runs on network %s, but has no DHCP lease for MAC address %s of its interface %s; clients with unknown MAC addresses request one, which may be this VM", s.network().Key(), mac, name)
			for _, other := range slices.Sorted(maps.Keys(unknown)) {
				f = f.because(asked[other])
			}
			findings = append(findings, f)
		}
	}
	return findings
}

// guestMAC returns the MAC address that an interface of a VM has according to its status, if it is another one than mac:
// that of the interface itself, or of one that only the guest agent reports if the agent does not report mac.
func guestMAC(u *unstructured.Unstructured, name, mac string) string {
	other := ""
	interfaces, _, _ := unstructured.NestedSlice(u.Object, "status", "interfaces")
	for _, i := range interfaces {
		i, _ := i.(map[string]any)
		text, _ := i["mac"].(string)
		reported := strings.ToLower(text)
		source, _ := i["infoSource"].(string)
		own, _ := i["name"].(string) // empty if only the guest agent reports the interface
		agent := strings.Contains(source, "guest-agent")
		switch {
		case reported == "":
		case reported == mac && agent:
			return ""
		case reported != mac && (own == name || agent && own == ""):
			other = reported
		}
	}
	return other
}
