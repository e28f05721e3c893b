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
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

func init() {
	notApplicable, noDaemon := disabled(v1alpha1.ComponentDHCP), noPods(dhcpState, AtInfra)
	state := pagesIn(AtInfra, dhcpState)
	register(
		Check{
			Code: "OOOI-DHCP-001", Title: "DHCP is ready", Needs: []string{"OOOI-CTL-002"}, After: []string{"OOOI-POD-002", "OOOI-NET-003"}, Reads: in(AtInfra, infras), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				return s.statusFindings(s.Infra.Status.ComponentStatus != nil && s.Infra.Status.ComponentStatus.DHCPReady, "DHCP is not ready")
			},
		},
		Check{
			Code: "OOOI-DHCP-002", Title: "the DHCP ranges have free addresses", Needs: []string{"OOOI-INF-001"}, Reads: in(AtInfra, leaseObjects), NotApplicable: notApplicable,
			Run: checkFreeAddresses,
		},
		Check{
			Code: "OOOI-DHCP-003", Title: "leases are valid and within the ranges", Needs: []string{"OOOI-INF-001"},
			Reads: slices.Concat(in(AtInfra, leaseObjects), in(AtControlPlane, machines)), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				var findings []Finding
				list, invalid := s.leases()
				findings = append(findings, invalid...)
				for _, l := range list {
					if l.State == "bound" && !s.Infra.Spec.InfraComponents.DHCP.Leasable(l.Address) && !s.reserved(l) {
						findings = append(findings, warned(leaseRef(l), "include the address in infraComponents.dhcp.ranges, and not in exclude, or reserve it for the VM",
							"DHCP no longer leases %s: its client gets another address at its next request", l.Address).because(holder(l)))
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-DHCP-004", Title: "no other host uses addresses that DHCP leases", Needs: []string{"OOOI-INF-001"},
			Reads: slices.Concat(in(AtInfra, leaseObjects), optional(pagesIn(AtInfra, dhcpState, dhcpMetrics, dnsMetrics, xdsdMetrics))), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding { return append(takenAddresses(s), checkUsedAddresses(s)...) },
		},
		Check{
			Code: "OOOI-DHCP-005", Title: "every VM on the network has a lease", Needs: []string{"OOOI-DHCP-001", "OOOI-DHCP-003", "OOOI-HC-001"}, After: []string{"OOOI-API-003", "OOOI-API-004", "OOOI-API-005", "OOOI-DHCP-011", "OOOI-DHCP-012", "OOOI-DHCP-014", "OOOI-DHCP-015", "OOOI-DHCP-016", "OOOI-DHCP-017"},
			Reads: slices.Concat(in(AtInfra, leaseObjects), in(AtControlPlane, machines), optional(pagesIn(AtInfra, dhcpState))), NotApplicable: notApplicable,
			Run: checkVMLeases,
		},
		Check{
			Code: "OOOI-DHCP-006", Title: "DHCP offers our DNS servers", Reads: in(AtInfra, infras), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, o := range s.Infra.Spec.InfraComponents.DHCP.Options {
					if s.Infra.Spec.InfraComponents.DNS.IsEnabled() && (o.Code != nil && *o.Code == dnsOption || o.Name == "dns") {
						findings = append(findings, failed(s.ref(), "remove the option, so that DHCP offers our DNS servers; add upstream resolvers to networkConfig.dnsServers",
							"infraComponents.dhcp.options sets the DNS servers %s: VMs cannot resolve control-plane names", o.Value))
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-DHCP-007", Title: "DHCP's state page answers", After: []string{"OOOI-NET-007", "OOOI-POD-002", "OOOI-SVC-003"}, Reads: pagesIn(AtInfra, dhcpState, dhcpMetrics), NotApplicable: noDaemon,
			Run: checkPages(AtInfra, dhcpState),
		},
		Check{
			Code: "OOOI-DHCP-008", Title: "DHCP follows VMs and leases", After: []string{"OOOI-NET-006", "OOOI-NODE-003", "OOOI-POD-002", "OOOI-ACC-001", "OOOI-ACC-002"}, Reads: state, NotApplicable: noDaemon,
			Run: checkDHCPWatches,
		},
		Check{
			Code: "OOOI-DHCP-009", Title: "MAC addresses of VMs are unique", Needs: []string{"OOOI-DHCP-008"}, Reads: state, NotApplicable: noDaemon,
			Run: func(s *Site) []Finding {
				ours := map[string]string{} // our pods by MAC address
				for _, p := range s.componentPods() {
					interfaces, err := read.PodInterfaces(p)
					for _, i := range interfaces {
						if err == nil && i.MAC != "" { // otherwise reported by OOOI-NET-003
							ours[strings.ToLower(i.MAC)] = p.Name
						}
					}
				}
				return s.dhcpFindings(func(d *dhcpReport, add func(key string, f Finding)) {
					for _, c := range d.Kubevirt.Clients {
						if pod := ours[c.MAC]; pod != "" {
							add(c.MAC, failed(machineRef(c.Interface), "assign a unique MAC address and restart the VM", "the VM has MAC address %s, which Pod %s also has on the VLAN: frames reach one of them", c.MAC, pod))
						}
					}
					for mac, owners := range d.Kubevirt.Duplicates {
						if len(owners) < 2 {
							continue
						}
						add(mac, failed(machineRef(owners[len(owners)-1]), "assign a unique MAC address and restart the VM; a template with a MAC address creates such VMs",
							"the VM has MAC address %s, which %s also has: DHCP serves only the latter", mac, owners[0]).because("interfaces with this MAC address: "+strings.Join(owners, ", ")))
					}
				})
			},
		},
		Check{
			Code: "OOOI-DHCP-010", Title: "annotations of VMs are valid", Needs: []string{"OOOI-DHCP-008"}, Reads: state, NotApplicable: noDaemon,
			Run: func(s *Site) []Finding {
				return s.dhcpFindings(func(d *dhcpReport, add func(key string, f Finding)) {
					for machine, problem := range d.Kubevirt.Problems {
						add(machine, warned(machineRef(machine), "correct the annotation: docs/reference/dhcp.md has the syntax, and the addresses that cannot be reserved", "%s; DHCP serves the VM without the annotation", problem))
					}
				})
			},
		},
		Check{
			Code: "OOOI-DHCP-011", Title: "DHCP serves every VM on the network", Needs: []string{"OOOI-HC-001", "OOOI-DHCP-008"}, Reads: slices.Concat(state, in(AtInfra, leaseObjects), in(AtControlPlane, machines)), NotApplicable: noDaemon,
			Run: checkKnownVMs,
		},
		Check{
			Code: "OOOI-DHCP-012", Title: "DHCP drops no packets and stores all leases", Needs: []string{"OOOI-DHCP-007"}, After: []string{"OOOI-API-003", "OOOI-API-004", "OOOI-API-005"},
			Reads: slices.Concat(pagesIn(AtInfra, dhcpMetrics, dhcpState), optional(in(Everywhere, webhookKinds...))), NotApplicable: noDaemon,
			Run: checkDHCPErrors,
		},
		Check{
			Code: "OOOI-DHCP-013", Title: "the DHCP ranges have addresses for the largest size of the NodePools", Needs: []string{"OOOI-INF-001", "OOOI-HC-001", "OOOI-DHCP-002"}, Reads: in(AtHosted, nodePools), NotApplicable: notApplicable,
			Run: checkNodePoolSizes,
		},
		Check{
			Code: "OOOI-DHCP-014", Title: "no other DHCP server answers on the VLAN", Needs: []string{"OOOI-DHCP-007"}, Reads: slices.Concat(in(AtInfra, infras), state), NotApplicable: noDaemon,
			Run: checkOtherDHCP,
		},
		Check{
			Code: "OOOI-DHCP-015", Title: "VMs use the MAC addresses of their specifications", Needs: []string{"OOOI-HC-001", "OOOI-DHCP-003", "OOOI-DHCP-008"}, After: []string{"OOOI-DHCP-011", "OOOI-DHCP-014", "OOOI-DHCP-016"},
			Reads: slices.Concat(state, in(AtInfra, leaseObjects), in(AtControlPlane, machines)), NotApplicable: noDaemon,
			Run: checkOtherMACs,
		},
		Check{
			Code: "OOOI-DHCP-016", Title: "leases match the VMs and their MAC addresses", Needs: []string{"OOOI-INF-001", "OOOI-HC-001"},
			Reads: slices.Concat(in(AtInfra, leaseObjects), in(AtControlPlane, machines)), NotApplicable: notApplicable,
			Run: checkBindings,
		},
		Check{
			Code: "OOOI-DHCP-017", Title: "VMs request the addresses that DHCP offers", After: []string{"OOOI-LNK-001", "OOOI-LNK-002", "OOOI-LNK-003", "OOOI-LNK-004", "OOOI-LNK-005", "OOOI-LNK-006", "OOOI-LNK-009", "OOOI-LNK-012"},
			Reads: slices.Concat(in(AtInfra, infras), state), NotApplicable: noDaemon, Run: checkUnrequestedOffers,
		},
	)
}

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
		return phase != "Running" || u.GetDeletionTimestamp() != nil || len(read.MachineInterfaces(u, s.network().Key())) == 0 || s.facts.Taken.Sub(runningSince(u)) < leaseGracePeriod
	})
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
func isTestClient(holder model.Ref) bool { return strings.HasPrefix(holder.Name, testclient.VM("")) }

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

// dhcpReport has the fields of coredhcp's state page that checks read.
type dhcpReport struct {
	Kubevirt *struct {
		Synced bool `json:"synced"`
		// SnapshotFailure is the error of the last write of the snapshot file, empty unless it failed.
		SnapshotFailure string        `json:"snapshotFailure"`
		Watches         []watchReport `json:"watches"`
		Clients         []struct {
			MAC       string `json:"mac"`
			Interface string `json:"interface"`
		} `json:"clients"`
		Duplicates map[string][]string `json:"duplicates"`
		// Unknown are MAC addresses of no VM that have sent packets.
		Unknown []struct {
			MAC  string    `json:"mac"`
			Last time.Time `json:"last"`
		} `json:"unknown"`
		Problems map[string]string `json:"problems"`
	} `json:"kubevirt"`
	// Selections are the DHCP servers that clients selected.
	Selections []struct {
		Server netip.Addr `json:"server"`
		Last   time.Time  `json:"last"`
		MACs   []string   `json:"macs"`
	} `json:"selections"`
	// Heard are messages of other DHCP servers. Those without MACs are replies to requests of the server itself.
	Heard []struct {
		Server netip.Addr `json:"server"`
		Type   string     `json:"type"`
		Last   time.Time  `json:"last"`
		MACs   []string   `json:"macs"`
	} `json:"heard"`
	// Offered are the clients that have requested none of the last offers.
	Offered []struct {
		MAC    string    `json:"mac"`
		Offers int       `json:"offers"`
		First  time.Time `json:"first"`
		Last   time.Time `json:"last"`
	} `json:"offered"`
	Leasedb []struct {
		Pool    string `json:"pool"`
		Failure string `json:"failure"`
		// SnapshotFailure is the error of the last write of the snapshot file, empty unless it failed.
		SnapshotFailure string `json:"snapshotFailure"`
		Addresses       struct {
			Synced bool `json:"synced"`
		} `json:"addresses"`
		// Quarantined are the addresses in quarantine, and Lost the bindings of VMs whose Leases were deleted.
		Quarantined []quarantine `json:"quarantined"`
		Lost        []lostLease  `json:"lost"`
		// Operations are the last results of operations of the lease store, by type, at the time Read.
		Operations map[string]storeOperation `json:"operations"`
		Read       time.Time                 `json:"read"`
	} `json:"leasedb"`
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

// dhcpFindings calls collect with the report of each DHCP replica and returns the findings sorted by key.
// Replicas that find the same fault add it under the same key, so it is returned once.
func (s *Site) dhcpFindings(collect func(d *dhcpReport, add func(key string, f Finding))) []Finding {
	found := map[string]Finding{}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		if d.value.Kubevirt != nil {
			collect(&d.value, func(key string, f Finding) { found[key] = f })
		}
	}
	var findings []Finding
	for _, key := range slices.Sorted(maps.Keys(found)) {
		findings = append(findings, found[key])
	}
	return findings
}

// checkDHCPWatches finds DHCP replicas that do not follow VMs or leases.
func checkDHCPWatches(s *Site) []Finding {
	var findings []Finding
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		remedy := fmt.Sprintf("see its log: kubectl -n %s logs %s; check that the pod can reach the API server", d.pod.Namespace, d.pod.Name)
		if k := d.value.Kubevirt; k != nil && !k.Synced {
			f := failed(podRef(d.pod), remedy, "coredhcp does not follow VMs: known VMs can renew their leases, new VMs get none")
			for _, w := range k.Watches {
				if !w.Connected && w.Error != "" {
					f = f.because(fmt.Sprintf("%s in %s: %s", w.Resource, w.Namespace, w.Error))
				}
			}
			findings = append(findings, withRejectedToken(f, d.pod))
		}
		for _, l := range d.value.Leasedb {
			if !l.Addresses.Synced || l.Failure != "" {
				f := failed(podRef(d.pod), remedy, "coredhcp does not follow the leases of pool %s: no new leases are granted", l.Pool)
				if l.Failure != "" {
					f = f.because(l.Failure)
				}
				findings = append(findings, withRejectedToken(f, d.pod))
			}
		}
	}
	return findings
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
		for _, i := range read.MachineInterfaces(u, s.network().Key()) {
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
		for _, name := range read.MachineInterfaces(u, s.network().Key()) {
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

// storeOperation has the last results of one operation of coredhcp's lease store, with the error of the last failure.
type storeOperation struct {
	Succeeded time.Time `json:"succeeded"`
	Failed    time.Time `json:"failed"`
	Error     string    `json:"error"`
	// Repeated is when the operation had succeeded for all clients for which it failed before.
	Repeated time.Time `json:"repeated"`
}

// dropReasons are the reasons of dropped packets that indicate a fault. Drops are reported above a share of maxDropShare
// of all packets.
var dropReasons = []string{"queue_full", "client_queue_full", "send_failed", "panic"}

const maxDropShare = 0.01

const (
	// recentFailure is how long a failed operation is reported after another one has succeeded.
	recentFailure = 2 * time.Minute
	// maxRetryInterval is the time within which a client without an address repeats its request. After this time without
	// an operation, it is not known whether another one would fail.
	maxRetryInterval = 10 * time.Minute
)

// checkDHCPErrors finds packets that were dropped since coredhcp started, and failed operations of its lease store.
func checkDHCPErrors(s *Site) []Finding {
	var findings []Finding
	for _, d := range s.metrics(dhcpMetrics) {
		received := d.value.sum("coredhcp_dhcp4_received_total")
		d.value.each("coredhcp_dhcp4_dropped_total", func(labels map[string]string, value float64) {
			if slices.Contains(dropReasons, labels["reason"]) && value > maxDropShare*received {
				findings = append(findings, warned(podRef(d.pod), "see OooiDHCPDropsPackets in docs/reference/alerts.md for the remedy of each reason",
					"coredhcp has dropped %.0f of %.0f packets for reason %s since it started", value, received, labels["reason"]))
			}
		})
	}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		for _, l := range d.value.Leasedb {
			for _, operation := range slices.Sorted(maps.Keys(l.Operations)) {
				o := l.Operations[operation]
				age := l.Read.Sub(o.Failed)
				remedy := fmt.Sprintf("correct the cause of the error; clients without an address repeat their requests: kubectl -n %s logs %s", d.pod.Namespace, d.pod.Name)
				by, correct := s.rejection(d.pod.Namespace, o.Error)
				if by != "" {
					by, remedy = ": "+by, correct
				}
				var f Finding
				switch failing := o.Failed.After(o.Succeeded); {
				case failing && age <= maxRetryInterval:
					f = failed(podRef(d.pod), remedy, "lease store operations of type %s fail: clients without an address may get none%s", operation, by)
				case failing:
					f = warned(podRef(d.pod), remedy, "the last lease store operation of type %s has failed, and none has succeeded since%s", operation, by)
				case o.Repeated.After(o.Failed):
					continue
				case age <= recentFailure:
					f = warned(podRef(d.pod), remedy, "a lease store operation of type %s has failed within the last %.0f minutes, and another one has succeeded since%s", operation, recentFailure.Minutes(), by)
				default:
					continue
				}
				f = f.because(formatTime(o.Failed) + ": " + o.Error)
				if !o.Succeeded.IsZero() {
					f = f.because("the last success was at " + formatTime(o.Succeeded))
				}
				findings = append(findings, f)
			}
		}
	}
	return findings
}
