package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
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
						what := "the VM keeps it until it is deleted"
						if l.VM == "" {
							what = "its client gets another address at its next request"
						}
						findings = append(findings, warned(leaseRef(l), "include the address in infraComponents.dhcp.ranges, and not in exclude, or reserve it for the VM",
							"DHCP no longer leases %s: %s", l.Address, what).because(holder(l)))
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
			Code: "OOOI-DHCP-005", Title: "every VM on the network has a lease, and renews it", Needs: []string{"OOOI-DHCP-001", "OOOI-DHCP-003", "OOOI-HC-001"}, After: []string{"OOOI-API-003", "OOOI-API-004", "OOOI-API-005", "OOOI-DHCP-011", "OOOI-DHCP-012", "OOOI-DHCP-014", "OOOI-DHCP-015", "OOOI-DHCP-016", "OOOI-DHCP-017"},
			Reads: slices.Concat(in(AtInfra, leaseObjects), in(AtControlPlane, machines), optional(pagesIn(AtInfra, dhcpState))), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding { return append(checkVMLeases(s), checkRenewals(s)...) },
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
		Unrenewed   []unrenewed  `json:"unrenewed"`
		Lost        []lostLease  `json:"lost"`
		// Operations are the last results of operations of the lease store, by type, at the time Read.
		Operations map[string]storeOperation `json:"operations"`
		Read       time.Time                 `json:"read"`
	} `json:"leasedb"`
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
		if k := d.value.Kubevirt; k != nil {
			findings = append(findings, keptFindings(d.pod, "coredhcp", k.Watches)...)
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
