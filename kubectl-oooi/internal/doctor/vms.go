package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
)

func init() {
	after := []string{"OOOI-POD-002", "OOOI-POD-009", "OOOI-NET-003", "OOOI-LNK-001", "OOOI-LNK-002", "OOOI-LNK-003", "OOOI-LNK-004", "OOOI-LNK-005", "OOOI-LNK-007", "OOOI-LNK-008", "OOOI-LNK-011"}
	register(
		Check{
			Code: "OOOI-LNK-012", Title: "running VMs with a lease answer our pods on the VLAN", After: append(slices.Clone(after), "OOOI-DHCP-004"),
			Reads: slices.Concat(in(AtInfra, leaseObjects), in(AtControlPlane, machines), pagesIn(AtInfra, append(slices.Clone(daemonMetrics), dhcpState)...)),
			NotApplicable: func(s *Site) string {
				return cmp.Or(disabled(v1alpha1.ComponentDHCP)(s), noServingPods(daemonMetrics...)(s))
			},
			Run: checkVMAnswers,
		},
		Check{
			Code: "OOOI-LNK-013", Title: "other hosts on the VLAN receive packets of the size of the MTU", After: append(slices.Clone(after), "OOOI-LNK-009", "OOOI-LNK-012"),
			Reads: slices.Concat(in(AtInfra, pods), pagesIn(AtInfra, append(slices.Clone(daemonMetrics), dhcpState)...)), NotApplicable: noServingPods(daemonMetrics...),
			Run: checkPacketSizes,
		},
	)
}

// minVMSilence is how long VMs must have been silent, by the times of a pod: longer than several rounds of probes.
const minVMSilence = time.Minute

// What a VM answers our pods.
type vmAnswer int

const (
	vmAnswers  vmAnswer = iota // or it is not certain that it does not
	vmRefuses                  // ARP requests, but no longer IP packets
	vmIsSilent                 // no longer ARP requests
)

// A leasedVM is a running VM with a lease, from which a pod of ours has had an answer.
type leasedVM struct {
	ref     model.Ref
	address netip.Addr
	node    string
	answer  vmAnswer
	// last is the last answer, to pod. pods are those that the VM no longer answers.
	last lastAnswer
	pod  string
	pods []string
}

// leasedVMs returns the running VMs with a lease that have answered our pods since they were created.
func (s *Site) leasedVMs() []leasedVM {
	sightings := s.sightings()
	running := map[string]*unstructured.Unstructured{}
	for _, u := range s.list(machines, AtControlPlane) {
		if !hasEnded(u) {
			running[u.GetNamespace()+"/"+u.GetName()] = u
		}
	}
	var vms []leasedVM
	list, _ := s.leases()
	for _, l := range list {
		u := running[l.VM]
		if l.State != dhcplease.StateBound || u == nil {
			continue
		}
		vm := leasedVM{ref: refTo(u), address: l.Address}
		vm.node, _, _ = unstructured.NestedString(u.Object, "status", "nodeName")
		var answers []vmAnswer
		for _, one := range sightings[l.Address] {
			if one.last.at.IsZero() || one.last.at.Before(u.GetCreationTimestamp().Time) {
				continue // a guest that boots has no address yet
			}
			answer := one.vmAnswer()
			answers = append(answers, answer)
			if answer != vmAnswers {
				vm.pods = append(vm.pods, one.pod.Name)
			}
			if one.last.at.After(vm.last.at) {
				vm.last, vm.pod = one.last, one.pod.Name
			}
		}
		if len(answers) > 0 {
			vm.answer = slices.Min(answers)
			vms = append(vms, vm)
		}
	}
	return vms
}

// vmAnswer returns what a VM answers the pod of a sighting.
func (one *sighting) vmAnswer() vmAnswer {
	switch {
	case one.mac != "" && one.last.by == byRefusal && one.newest.Sub(one.last.at) >= minVMSilence:
		return vmRefuses
	case one.mac == "" && one.newest.Sub(one.since) >= minVMSilence:
		return vmIsSilent
	}
	return vmAnswers
}

// checkVMAnswers finds nodes whose VMs no longer answer any pod of ours. A single VM may have a fault of its own.
func checkVMAnswers(s *Site) []Finding {
	byNode := map[string][]leasedVM{}
	for _, vm := range s.leasedVMs() {
		byNode[vm.node] = append(byNode[vm.node], vm)
	}
	lost := map[vmAnswer][]leasedVM{}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		if slices.ContainsFunc(byNode[node], func(vm leasedVM) bool { return vm.answer == vmAnswers }) {
			continue
		}
		for _, vm := range byNode[node] {
			lost[vm.answer] = append(lost[vm.answer], vm)
		}
	}
	var findings []Finding
	if vms := lost[vmIsSilent]; len(vms) >= minSilentHosts {
		f := failed(s.ref(), "check the uplinks of the VMs' nodes to the VLAN, and what the switch drops: dynamic ARP inspection (it needs a static ARP access list for the addresses of our pods, or trusted ports), DHCP snooping, private VLANs, ACLs",
			"%d running VMs with a lease no longer answer ARP requests of our pods, and no other VM %sdoes", len(vms), onNodes(vms)).because(vmEvidence(vms)...)
		findings = append(findings, f.because(s.otherAnswers(vms)...))
	}
	if vms := lost[vmRefuses]; len(vms) >= minSilentHosts {
		findings = append(findings, warned(s.ref(), "find the filter of IP packets on the nodes of the VMs, such as the chain FORWARD of iptables or nftables, which also filters bridges if the sysctl net.bridge.bridge-nf-call-iptables is 1; or ACLs of the switch",
			"%d running VMs with a lease answer ARP requests of our pods, but no longer IP packets, and no other VM %sdoes: a filter drops IP packets between them", len(vms), onNodes(vms)).because(vmEvidence(vms)...))
	}
	return findings
}

// onNodes returns "on node A, B " with the nodes of VMs, empty if they are not known.
func onNodes(vms []leasedVM) string {
	var names []string
	for _, vm := range vms {
		if vm.node != "" && !slices.Contains(names, vm.node) {
			names = append(names, vm.node)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "on node " + strings.Join(names, ", ") + " "
}

// maxLostVMs limits the VMs in the evidence of a finding.
const maxLostVMs = 4

func vmEvidence(vms []leasedVM) []string {
	var evidence []string
	for _, vm := range vms[:min(len(vms), maxLostVMs)] {
		evidence = append(evidence, fmt.Sprintf("VM %s, %s: last answer at %s to Pod %s, of MAC address %s; none to Pod %s", vm.ref.Key(), vm.address, formatTime(vm.last.at), vm.pod, vm.last.mac, strings.Join(vm.pods, ", ")))
	}
	if more := len(vms) - maxLostVMs; more > 0 {
		evidence = append(evidence, fmt.Sprintf("%d more", more))
	}
	return evidence
}

// otherAnswers returns the hosts that answer pods of ours, besides VMs. Connections keep the MAC address of a host in the
// kernel's table, although it answers no ARP requests.
func (s *Site) otherAnswers(vms []leasedVM) []string {
	var evidence []string
	sightings := s.sightings()
	for _, a := range slices.SortedFunc(maps.Keys(sightings), netip.Addr.Compare) {
		if slices.ContainsFunc(vms, func(vm leasedVM) bool { return vm.address == a }) {
			continue
		}
		for _, one := range sightings[a] {
			if one.mac != "" && len(evidence) < maxLostVMs {
				evidence = append(evidence, fmt.Sprintf("%s answers Pod %s; connections keep the MAC address of a host valid without ARP", a, one.pod.Name))
				break
			}
		}
	}
	return evidence
}

// packetSuffix is the suffix of the metric with the size of the largest packets that a host receives.
const packetSuffix = "_packet_bytes"

// checkPacketSizes finds a VLAN on which no other host receives packets of the size of the MTU of our pods' interfaces,
// although hosts receive small ones. It needs two hosts, since the interface of one may have a smaller MTU.
func checkPacketSizes(s *Site) []Finding {
	sizes := map[string]map[netip.Addr]int{} // by pod
	for _, observer := range neighborMetrics {
		for _, x := range s.metrics(observer.page) {
			sizes[x.pod.Name] = map[netip.Addr]int{}
			x.value.each(vlanMetric(observer.metric, packetSuffix), func(labels map[string]string, value float64) {
				if a, err := netip.ParseAddr(labels["address"]); err == nil {
					sizes[x.pod.Name][a] = int(value)
				}
			})
		}
	}
	mtus := map[string]int{}
	for _, i := range s.vlanInterfaces() {
		mtus[i.pod.Name] = i.mtu
	}
	sightings := s.sightings()
	hosts, mtu, largest := map[string]bool{}, 0, 0
	var evidence []string
	for _, a := range slices.SortedFunc(maps.Keys(sightings), netip.Addr.Compare) {
		for _, one := range sightings[a] {
			size, known := sizes[one.pod.Name][a]
			switch {
			case !known || one.mac == "" || one.vmAnswer() != vmAnswers || mtus[one.pod.Name] == 0:
			case size >= mtus[one.pod.Name]:
				return nil
			default:
				hosts[one.mac], mtu, largest = true, max(mtu, mtus[one.pod.Name]), max(largest, size)
				if len(evidence) < maxLostVMs {
					evidence = append(evidence, fmt.Sprintf("%s receives packets of Pod %s of %d bytes, but not of %d", a, one.pod.Name, size, mtus[one.pod.Name]))
				}
			}
		}
	}
	if len(hosts) < minSilentHosts {
		return nil
	}
	return []Finding{failed(s.ref(), fmt.Sprintf("set an MTU of %d on each hop of the VLAN: uplinks and bridges of the nodes, ports of the switches, tunnels; or set a smaller one in the NetworkAttachmentDefinition of the VMs, and delete our pods", mtu),
		"packets of our pods of more than %d bytes are lost on the way to other hosts on the VLAN, although the pods' interfaces have MTU %d: TLS handshakes with large certificates time out", largest, mtu).because(evidence...)}
}
