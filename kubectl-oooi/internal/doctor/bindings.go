package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// clientPaths are the fields of a Lease that name the client of the address.
var clientPaths = []fieldpath.Path{fieldpath.MakePathOrDie("spec", "holderIdentity"), fieldpath.MakePathOrDie("metadata", "labels", dhcplease.MACLabel)}

// clientManagers returns the managed fields of those managers of a Lease that set its client, without the fields. A Lease
// of a bundle has no others.
func clientManagers(u *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	var list []metav1.ManagedFieldsEntry
	for _, f := range u.GetManagedFields() {
		if f.FieldsV1 == nil || slices.ContainsFunc(clientPaths, setup.FieldsOf(f).Has) {
			list = append(list, metav1.ManagedFieldsEntry{Manager: f.Manager, Operation: f.Operation, APIVersion: f.APIVersion, Time: f.Time, FieldsType: f.FieldsType})
		}
	}
	return list
}

// leaseManager is the field manager of coredhcp, which is the name of its binary.
const leaseManager = "coredhcp"

// binding is the bound Lease of an interface of a VM.
type binding struct {
	*leases.Lease

	// holder is "namespace/vm/interface".
	holder string
	// editor is the manager that set the holder or its MAC address last, nil if that is coredhcp or unknown.
	editor *fieldManager
}

// bindings returns the bound Leases of VMs in the control plane's namespace, sorted by address.
func (s *Site) bindings() []binding {
	editors := map[string]*fieldManager{}
	for _, u := range s.list(leaseObjects, AtInfra) {
		var writers []fieldManager
		for _, f := range u.GetManagedFields() {
			writers = append(writers, fieldManager{name: f.Manager, at: timeOf(f)})
		}
		if writer := last(writers); writer != nil && writer.name != leaseManager {
			editors[u.GetName()] = writer
		}
	}
	list, _ := s.leases()
	var bound []binding
	for _, l := range list {
		namespace, _, _ := strings.Cut(l.VM, "/")
		if l.State == dhcplease.StateBound && l.VM != "" && slices.Contains(s.namespaces[AtControlPlane], namespace) {
			bound = append(bound, binding{l, l.VM + "/" + l.Interface, editors[l.Metadata.Name]})
		}
	}
	return bound
}

// vmMACs returns the MAC address of each interface on the network, "namespace/vm/interface", as DHCP reads it; empty if it
// is not known yet.
func (s *Site) vmMACs() map[string]string {
	macs := map[string]string{}
	mac := func(interfaces []any, name, key string, trusted func(i map[string]any) bool) string {
		for _, i := range interfaces {
			if i, _ := i.(map[string]any); i["name"] == name && trusted(i) {
				text, _ := i[key].(string)
				return strings.ToLower(text)
			}
		}
		return ""
	}
	for _, u := range s.list(machines, AtControlPlane) {
		specified, _, _ := unstructured.NestedSlice(u.Object, "spec", "domain", "devices", "interfaces")
		reported, _, _ := unstructured.NestedSlice(u.Object, "status", "interfaces")
		for _, name := range s.machineInterfaces(u) {
			key := refTo(u).Key() + "/" + name
			macs[key] = mac(specified, name, "macAddress", func(map[string]any) bool { return true })
			if macs[key] == "" {
				macs[key] = mac(reported, name, "mac", func(i map[string]any) bool {
					source, _ := i["infoSource"].(string)
					return strings.Contains(source, "domain") // not what only the guest reports
				})
			}
		}
	}
	return macs
}

// checkBindings finds bound Leases that another client than coredhcp wrote and that do not match the VMs: of a VM that does
// not exist, with the MAC address of another VM, or two of one VM. Without that client, the VM was just deleted or changed,
// and coredhcp corrects the Lease.
func checkBindings(s *Site) []Finding {
	bound, macs := s.bindings(), s.vmMACs()
	owners := map[string][]string{} // interfaces by MAC address
	for _, key := range slices.Sorted(maps.Keys(macs)) {
		if mac := macs[key]; mac != "" {
			owners[mac] = append(owners[mac], key)
		}
	}
	held := map[string][]binding{}
	for _, b := range bound {
		held[b.holder] = append(held[b.holder], b)
	}
	var findings []Finding
	for _, b := range bound {
		if b.editor == nil {
			continue
		}
		namespace, name := b.Metadata.Namespace, b.Metadata.Name
		_, exists := macs[b.holder]
		evidence := []string{b.editor.wrote()}
		if !exists {
			evidence = append(evidence, "no VirtualMachineInstance "+b.VM+" has interface "+b.Interface+" on the network")
		}
		of := owners[strings.ToLower(b.MAC)]
		switch other := len(of) > 0 && !slices.Contains(of, b.holder); {
		case other && len(held[of[0]]) == 0:
			findings = append(findings, failed(leaseRef(b.Lease), fmt.Sprintf(`restore the holder: kubectl -n %s patch lease %s --type=merge -p '{"spec": {"holderIdentity": %q}}'`, namespace, name, of[0]),
				"the Lease of %s names VM %s, but its MAC address %s is that of VM %s, which has no lease: it gets another address at its next request", b.Address, b.VM, b.MAC, vmOf(of[0])).because(evidence...))
		case !exists:
			findings = append(findings, warned(leaseRef(b.Lease), fmt.Sprintf("if no VM has this name (kubectl -n %s get vm,vmi), delete the Lease: kubectl -n %s delete lease %s", machineRef(b.VM).Namespace, namespace, name),
				"the Lease of %s names interface %s of VM %s, which is not on the network: no other VM gets the address", b.Address, b.Interface, b.VM).because(evidence...))
		case other:
			findings = append(findings, warned(leaseRef(b.Lease), fmt.Sprintf("correct the MAC address: kubectl -n %s label lease %s --overwrite %s=%s", namespace, name, dhcplease.MACLabel, strings.ReplaceAll(macs[b.holder], ":", "-")),
				"the Lease of %s names VM %s, but its MAC address %s is that of VM %s", b.Address, b.VM, b.MAC, vmOf(of[0])).because(evidence...))
		}
	}
	for _, holder := range slices.Sorted(maps.Keys(held)) {
		if f := twiceFinding(holder, held[holder]); f != nil {
			findings = append(findings, *f)
		}
	}
	return findings
}

// twiceFinding returns the finding about several bound Leases of an interface, nil if there is one, or if coredhcp wrote
// them: it does so when a VM moves to another address. The newest one is in force. The finding is a failure if another
// client wrote that one.
func twiceFinding(holder string, list []binding) *Finding {
	newest := slices.MaxFunc(list, func(a, b binding) int { return a.Since.Compare(b.Since) })
	if len(list) < 2 || !slices.ContainsFunc(list, func(b binding) bool { return b.editor != nil }) {
		return nil
	}
	f := warned(leaseRef(newest.Lease), fmt.Sprintf("delete those of addresses that the VM does not use: kubectl -n %s delete lease NAME", newest.Metadata.Namespace),
		"VM %s has %d bound Leases: coredhcp leases it %s, which the newest one has", vmOf(holder), len(list), newest.Address)
	if newest.editor != nil {
		f.Severity = Fail
		f.Message += "; if it has another address, it loses that at its next request"
	}
	for _, b := range list {
		f = f.because(fmt.Sprintf("Lease %s, written at %s", b.Metadata.Name, formatTime(b.Since)))
		if b.editor != nil {
			f = f.because(b.editor.wrote())
		}
	}
	return &f
}

// wrote returns that the manager set the client of a Lease.
func (f *fieldManager) wrote() string {
	return fmt.Sprintf("its client was set by %q at %s, and not by %s", f.name, formatTime(f.at), leaseManager)
}

// vmOf returns "namespace/name" of the VM of an interface.
func vmOf(holder string) string { return machineRef(holder).Key() }
