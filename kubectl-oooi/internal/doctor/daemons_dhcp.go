package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// dhcpReport has the fields of coredhcp's state page that checks read.
type dhcpReport struct {
	Kubevirt *struct {
		Synced  bool          `json:"synced"`
		Watches []watchReport `json:"watches"`
		Clients []struct {
			MAC       string `json:"mac"`
			Interface string `json:"interface"`
		} `json:"clients"`
		Duplicates map[string][]string `json:"duplicates"`
		Problems   map[string]string   `json:"problems"`
	} `json:"kubevirt"`
	Leasedb []struct {
		Pool      string `json:"pool"`
		Family    string `json:"family"`
		Failure   string `json:"failure"`
		Addresses struct {
			Quarantined int  `json:"quarantined"`
			Synced      bool `json:"synced"`
		} `json:"addresses"`
	} `json:"leasedb"`
}

func dhcpDaemonChecks() []Check {
	notApplicable := noPods(dhcpState, AtInfra)
	state := pagesIn(AtInfra, dhcpState)
	return []Check{
		{
			Code: "OOOI-DHCP-007", Title: "DHCP's state page answers", After: []string{"OOOI-POD-002"}, Reads: pagesIn(AtInfra, dhcpState, dhcpMetrics), NotApplicable: notApplicable,
			Run: checkPages(AtInfra, dhcpState),
		},
		{
			Code: "OOOI-DHCP-008", Title: "DHCP follows VMs and leases", After: []string{"OOOI-POD-002", "OOOI-ACC-001"}, Reads: state, NotApplicable: notApplicable,
			Run: checkDHCPWatches,
		},
		{
			Code: "OOOI-DHCP-009", Title: "MAC addresses of VMs are unique", Needs: []string{"OOOI-DHCP-008"}, Reads: state, NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				return s.dhcpFindings(func(d *dhcpReport, add func(key string, f Finding)) {
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
		{
			Code: "OOOI-DHCP-010", Title: "annotations of VMs are valid", Needs: []string{"OOOI-DHCP-008"}, Reads: state, NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				return s.dhcpFindings(func(d *dhcpReport, add func(key string, f Finding)) {
					for machine, problem := range d.Kubevirt.Problems {
						add(machine, warned(machineRef(machine), "correct the annotation: docs/reference/dhcp.md has the syntax, and the addresses that cannot be reserved", "%s; DHCP serves the VM without the annotation", problem))
					}
				})
			},
		},
		{
			Code: "OOOI-DHCP-011", Title: "DHCP serves every VM on the network", Needs: []string{"OOOI-HC-001", "OOOI-DHCP-008"}, Reads: slices.Concat(state, in(AtControlPlane, machines)), NotApplicable: notApplicable,
			Run: checkKnownVMs,
		},
		{
			Code: "OOOI-DHCP-012", Title: "DHCP drops no packets and stores all leases", Needs: []string{"OOOI-DHCP-007"}, Reads: pagesIn(AtInfra, dhcpMetrics), NotApplicable: notApplicable,
			Run: checkDHCPErrors,
		},
	}
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
			findings = append(findings, f)
		}
		for _, l := range d.value.Leasedb {
			if !l.Addresses.Synced || l.Failure != "" {
				f := failed(podRef(d.pod), remedy, "coredhcp does not follow the leases of pool %s: no new leases are granted", l.Pool)
				if l.Failure != "" {
					f = f.because(l.Failure)
				}
				findings = append(findings, f)
			}
		}
	}
	return findings
}

// checkKnownVMs finds running VMs on the network whose interface no DHCP replica knows.
func checkKnownVMs(s *Site) []Finding {
	if dhcp := s.Infra.Spec.InfraComponents.DHCP; dhcp != nil && dhcp.VMSelector != nil {
		return nil // doctor does not evaluate the selector
	}
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
	for _, u := range s.list(machines, AtControlPlane) {
		if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase != "Running" || u.GetDeletionTimestamp() != nil || s.facts.Taken.Sub(runningSince(u)) < leaseGracePeriod {
			continue
		}
		for _, i := range read.MachineInterfaces(u, s.network().Key()) {
			if !known[u.GetNamespace()+"/"+u.GetName()+"/"+i] {
				ref := model.Ref{Kind: machines.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
				findings = append(findings, failed(ref, "if the VM is a node of the hosted cluster, check its labels and its MAC address: kubectl -n "+ref.Namespace+" get vmi "+ref.Name+" -o yaml; infraComponents.dhcp.vmSelector of the Infra selects the VMs",
					"DHCP does not know interface %s of the VM, and does not reply to its requests", i).because("label "+labelInfraID+": "+u.GetLabels()[labelInfraID]))
			}
		}
	}
	return findings
}

// dropReasons are the reasons of dropped packets that indicate a fault. Drops and store errors are reported
// above a share of maxErrorShare of all packets or operations.
var dropReasons = []string{"queue_full", "client_queue_full", "send_failed", "panic"}

const maxErrorShare = 0.01

// checkDHCPErrors finds packets that were dropped and lease operations that failed since coredhcp started.
func checkDHCPErrors(s *Site) []Finding {
	var findings []Finding
	for _, d := range s.metrics(dhcpMetrics) {
		received := d.value.sum("coredhcp_dhcp4_received_total")
		d.value.each("coredhcp_dhcp4_dropped_total", func(labels map[string]string, value float64) {
			if slices.Contains(dropReasons, labels["reason"]) && value > maxErrorShare*received {
				findings = append(findings, warned(podRef(d.pod), "see OooiDHCPDropsPackets in docs/reference/alerts.md for the remedy of each reason",
					"coredhcp has dropped %.0f of %.0f packets for reason %s since it started", value, received, labels["reason"]))
			}
		})
		done := map[string]float64{}
		d.value.each("coredhcp_leasedb_store_seconds_count", func(labels map[string]string, value float64) { done[labels["operation"]] = value })
		d.value.each("coredhcp_leasedb_store_errors_total", func(labels map[string]string, value float64) {
			if operation := labels["operation"]; operation != "conflict" && value > maxErrorShare*done[operation] {
				findings = append(findings, failed(podRef(d.pod), fmt.Sprintf("see the errors of the API server: kubectl -n %s logs %s", d.pod.Namespace, d.pod.Name),
					"%.0f of %.0f lease store operations of type %s have failed since coredhcp started", value, done[operation], operation))
			}
		})
	}
	return findings
}
