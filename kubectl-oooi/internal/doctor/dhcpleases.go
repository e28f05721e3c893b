package doctor

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
)

func leaseRef(l *leases.Lease) model.Ref {
	return model.Ref{Kind: leaseObjects.Kind, Namespace: l.Metadata.Namespace, Name: l.Metadata.Name}
}

func holder(l *leases.Lease) string {
	return strings.TrimSpace(fmt.Sprintf("held by %s%s %s", l.VM, l.Client, l.MAC))
}

// quarantine is an address that coredhcp does not lease, because another host uses it.
type quarantine struct {
	Address netip.Addr `json:"address"`
	// MAC is the MAC address that answered last for the address, and Seen when; empty if none has.
	MAC  string    `json:"mac"`
	Seen time.Time `json:"seen"`
	// Declined is set if a client declined the address.
	Declined bool `json:"declined"`
}

// minProxied is the number of addresses for which one MAC address answers from which the host counts as one with proxy ARP.
const minProxied = 4

// checkUsedAddresses finds addresses that clients declined, or that coredhcp found in use, by the MAC address that answers
// for them.
func checkUsedAddresses(s *Site) []Finding {
	declined := map[netip.Addr]*leases.Lease{}
	list, _ := s.leases()
	for _, l := range list {
		if l.State == "declined" {
			declined[l.Address] = l
		}
	}
	used := map[string]map[netip.Addr]quarantine{} // by MAC address
	vms := map[string]string{}                     // interfaces by MAC address
	answered := map[netip.Addr]bool{}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		if d.value.Kubevirt != nil {
			for _, c := range d.value.Kubevirt.Clients {
				vms[c.MAC] = c.Interface
			}
		}
		for i := range d.value.Leasedb {
			for _, q := range d.value.Leasedb[i].Quarantined {
				if q.MAC == "" {
					continue // its Lease says the same
				}
				if used[q.MAC] == nil {
					used[q.MAC] = map[netip.Addr]quarantine{}
				}
				used[q.MAC][q.Address], answered[q.Address] = q, true
			}
		}
	}
	var findings []Finding
	for _, l := range list {
		if l.State == "declined" && !answered[l.Address] {
			findings = append(findings, warned(leaseRef(l), "find the other client with arping on the VLAN, and remove the address from it, or exclude the address (infraComponents.dhcp.exclude)",
				"a client declined address %s at %s because another client uses it", l.Address, l.Since.Format(time.RFC3339)))
		}
	}
	lost := s.lostLeases()
	for _, mac := range slices.Sorted(maps.Keys(used)) {
		addresses := slices.SortedFunc(maps.Keys(used[mac]), netip.Addr.Compare)
		vm := vms[mac]
		if l := lost[machineRef(vm).Key()]; vm != "" && len(addresses) == 1 && l.Address == addresses[0] {
			continue // OOOI-DHCP-005
		}
		findings = append(findings, s.usedFinding(mac, vm, addresses, used[mac], declined))
	}
	return findings
}

// usedFinding returns the finding about a MAC address, of a VM's interface if vm is not empty, that answers for addresses.
func (s *Site) usedFinding(mac, vm string, addresses []netip.Addr, used map[netip.Addr]quarantine, declined map[netip.Addr]*leases.Lease) Finding {
	ref := s.ref()
	host := "the host with MAC address " + mac
	if vm != "" {
		ref, host = machineRef(vm), fmt.Sprintf("interface %s with MAC address %s", vm, mac)
	}
	var f Finding
	switch first := addresses[0]; {
	case len(addresses) >= minProxied:
		f = warned(ref, "disable proxy ARP on the host (net.ipv4.conf.INTERFACE.proxy_arp=0 on Linux, 'no ip proxy-arp' and 'no ip local-proxy-arp' on routers); DHCP leases the addresses again half a minute later",
			"%s answers ARP requests for %d addresses of the DHCP ranges: it does proxy ARP, and DHCP leases none of them", host, len(addresses))
	case len(addresses) == 1 && declined[first] != nil && vm == "":
		ref = leaseRef(declined[first])
		fallthrough
	default:
		texts := make([]string, len(addresses))
		for i, a := range addresses {
			texts[i] = a.String()
		}
		f = warned(ref, "remove the address from the host, or exclude it (infraComponents.dhcp.exclude); DHCP leases it again half a minute after the host is gone",
			"%s uses %s of the DHCP ranges without a lease: DHCP leases it to no other client", host, strings.Join(texts, " and "))
	}
	for i, a := range addresses {
		if i == maxQuoted {
			f = f.because(fmt.Sprintf("and %d more addresses", len(addresses)-i))
			break
		}
		text := a.String() + " was found in use"
		if l := declined[a]; l != nil {
			text = fmt.Sprintf("%s was declined by a client at %s", a, l.Since.Format(time.RFC3339))
		}
		f = f.because(text + "; last answer at " + formatTime(used[a].Seen))
	}
	return f
}

// maxQuoted limits the addresses in the evidence of one finding.
const maxQuoted = 10

// leases returns the Infra's leases, sorted, and a finding for each Lease that cannot be parsed.
func (s *Site) leases() ([]*leases.Lease, []Finding) {
	var list []*leases.Lease
	var invalid []Finding
	for _, o := range all[coordinationv1.Lease](s, leaseObjects, AtInfra) {
		if _, ok := o.Labels[leases.PoolLabel]; !ok {
			continue
		}
		l, err := leases.Read(o, s.facts.Taken)
		switch {
		case err != nil:
			ref := model.Ref{Kind: leaseObjects.Kind, Namespace: o.Namespace, Name: o.Name}
			invalid = append(invalid, failed(ref, "delete the Lease; the VM then gets a new one", "the Lease is invalid: %v", errors.Unwrap(err)))
		case l != nil && l.Infra == s.Infra.Name:
			list = append(list, l)
		}
	}
	leases.Sort(list)
	return list, invalid
}

// ranges returns the ranges from which DHCP leases addresses.
func (s *Site) ranges() []v1alpha1.AddressRange {
	var list []v1alpha1.AddressRange
	for _, r := range s.Infra.Spec.InfraComponents.DHCP.EffectiveRanges() {
		if parsed, err := v1alpha1.ParseAddressRange(string(r.Start) + "-" + string(r.End)); err == nil {
			list = append(list, parsed)
		}
	}
	return list
}

// dnsOption is the DHCP option Domain Name Server (RFC 2132, 3.8).
const dnsOption = 6

// nearlyFullPercent is the share of leased addresses, in percent, from which ranges are reported.
const nearlyFullPercent = 90

// leaseGracePeriod is how long a VM may run before it must have a lease.
const leaseGracePeriod = 5 * time.Minute

// checkFreeAddresses finds ranges that are full or nearly full. Bound and declined addresses count as used.
func checkFreeAddresses(s *Site) []Finding {
	size := new(big.Int)
	for _, r := range s.ranges() {
		size.Add(size, sizeOf(r))
	}
	taken := int64(0)
	list, _ := s.leases()
	for _, l := range list {
		if l.State == "bound" || l.State == "declined" {
			taken++
		}
	}
	full := new(big.Int).Mul(big.NewInt(taken), big.NewInt(100))
	limit := new(big.Int).Mul(size, big.NewInt(nearlyFullPercent))
	const remedy = "extend infraComponents.dhcp.ranges, or delete unused VMs; an address becomes free one minute after its VM is deleted"
	switch {
	case size.Sign() == 0 || full.Cmp(limit) < 0:
		return nil
	case big.NewInt(taken).Cmp(size) >= 0:
		return []Finding{failed(s.ref(), remedy, "all %d addresses of the DHCP ranges are leased or declined: new VMs get no address", taken)}
	default:
		return []Finding{warned(s.ref(), remedy, "%d of %s addresses of the DHCP ranges are leased or declined", taken, size)}
	}
}

// reserved reports whether an annotation of the VM reserves the address of a lease. It assumes so for a stopped
// VM, which has no VirtualMachineInstance to read the annotation from.
func (s *Site) reserved(l *leases.Lease) bool {
	for _, u := range s.list(machines, AtControlPlane) {
		if u.GetNamespace()+"/"+u.GetName() != l.VM {
			continue
		}
		addresses, err := v1alpha1.ReservedAddresses(u.GetAnnotations()[v1alpha1.AnnotationDHCPAddresses], l.Interface)
		return err == nil && slices.Contains(addresses, l.Address)
	}
	return l.VM != ""
}

func sizeOf(r v1alpha1.AddressRange) *big.Int {
	number := func(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }
	n := new(big.Int).Sub(number(r.Last), number(r.First))
	return n.Add(n, big.NewInt(1))
}

// unrenewed is the lease of a VM that has not requested it from a replica for longer than the lease time.
type unrenewed struct {
	Address netip.Addr `json:"address"`
	Holder  string     `json:"holder"`
	Since   time.Time  `json:"since"`
}

// checkRenewals finds running VMs from which no DHCP replica has heard for longer than the lease time.
func checkRenewals(s *Site) []Finding {
	reports := states[dhcpReport](s, dhcpState, AtInfra)
	missedBy := map[string]int{} // replicas by holder
	last := map[string]unrenewed{}
	for _, d := range reports {
		for i := range d.value.Leasedb {
			for _, l := range d.value.Leasedb[i].Unrenewed {
				missedBy[l.Holder]++
				if l.Since.After(last[l.Holder].Since) {
					last[l.Holder] = l
				}
			}
		}
	}
	var findings []Finding
	for _, u := range s.servedVMs() {
		for _, name := range s.machineInterfaces(u) {
			holder := dhcplease.Interface{Namespace: u.GetNamespace(), VM: u.GetName(), Name: name}.String()
			if l := last[holder]; len(reports) > 0 && missedBy[holder] == len(reports) && runningSince(u).Before(l.Since) {
				findings = append(findings, warned(refTo(u), "check whether the guest is connected to the VLAN and configures the interface by DHCP: virtctl console "+u.GetName()+" -n "+u.GetNamespace(),
					"the VM has not renewed the lease of %s since %s or earlier, which is longer than the lease time: it has lost the VLAN, hangs, or configures the address without DHCP", l.Address, formatTime(l.Since)))
			}
		}
	}
	return findings
}

// lostLease is the lease of a VM whose Lease object was deleted by another client than coredhcp.
type lostLease struct {
	Address netip.Addr `json:"address"`
	Holder  string     `json:"holder"`
	MAC     string     `json:"mac"`
	At      time.Time  `json:"at"`
	// Renewal is the time until which the VM renews the lease.
	Renewal time.Time `json:"renewal"`
}

// lostLeases returns the lost leases by "namespace/name" of the VM.
func (s *Site) lostLeases() map[string]lostLease {
	lost := map[string]lostLease{}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		for i := range d.value.Leasedb {
			for _, l := range d.value.Leasedb[i].Lost {
				lost[machineRef(l.Holder).Key()] = l
			}
		}
	}
	return lost
}

// isTestClient reports whether a holder of a lease is a client of 'kubectl oooi test', which deletes its Lease at the end.
func isTestClient(holder model.Ref) bool { return testclient.IsVM(holder.Name) }

// checkVMLeases finds VMs without a lease.
func checkVMLeases(s *Site) []Finding {
	list, _ := s.leases()
	lost := s.lostLeases()
	leased := func(vm string) bool {
		return slices.ContainsFunc(list, func(l *leases.Lease) bool { return l.VM == vm })
	}
	var findings []Finding
	for _, u := range s.servedVMs() {
		key := u.GetNamespace() + "/" + u.GetName()
		if _, deleted := lost[key]; !deleted && !leased(key) {
			findings = append(findings, failed(refTo(u), fmt.Sprintf("check whether the VM's DHCP requests arrive: kubectl -n %s logs -l %s=%s,%s=dhcp",
				s.Infra.Namespace, v1alpha1.LabelInfra, s.Infra.Name, v1alpha1.LabelComponent), "the VM runs on network %s, but has no DHCP lease", s.network().Key()))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(lost)) {
		if l := lost[key]; !leased(key) && !isTestClient(machineRef(l.Holder)) {
			findings = append(findings, warned(machineRef(l.Holder), "wait for the renewal, or renew the lease in the guest, such as with a restart of the VM; to find the client that deletes Leases, see the audit log of the API server",
				"the Lease of its address %s was deleted at %s: the VM keeps the address, and coredhcp writes the Lease again when the VM renews it, at %s at the latest", l.Address, formatTime(l.At), formatTime(l.Renewal)))
		}
	}
	return findings
}

// checkNodePoolSizes compares the number of addresses with the largest number of VMs that the NodePools can
// have: replicas or the autoscaler's maximum, and one more for each NodePool with upgrade type Replace.
func checkNodePoolSizes(s *Site) []Finding {
	addresses := int64(0)
	for _, r := range s.ranges() {
		if size := sizeOf(r); size.IsInt64() {
			addresses += size.Int64()
		} else {
			return nil // an IPv6 range is never too small
		}
	}
	wanted := int64(0)
	var evidence []string
	for _, u := range s.nodePools() {
		n, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		if most, ok, _ := unstructured.NestedInt64(u.Object, "spec", "autoScaling", "max"); ok {
			n = most
		}
		surge := int64(0)
		if kind, _, _ := unstructured.NestedString(u.Object, "spec", "management", "upgradeType"); kind == "Replace" {
			surge = 1
		}
		wanted += n + surge
		evidence = append(evidence, fmt.Sprintf("NodePool %s: %d VMs, and %d more during a rollout", u.GetName(), n, surge))
	}
	if wanted <= addresses || addresses == 0 {
		return nil
	}
	return []Finding{warned(s.ref(), "extend infraComponents.dhcp.ranges before the NodePools grow", "the NodePools can have %d VMs, but the DHCP ranges have only %d addresses", wanted, addresses).because(evidence...)}
}
