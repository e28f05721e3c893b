package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
)

// takenGracePeriod is how long a lease must not have been written: our pods may know the MAC address of the previous client
// for as long as the kernel keeps it.
const takenGracePeriod = 90 * time.Second

// A takenAddress is an address that is leased to a client, and for which another MAC address answers.
type takenAddress struct {
	lease *leases.Lease
	claim claim
}

// A claim is an answer of a MAC address for an address.
type claim struct {
	// pod is one of ours that got the answer.
	pod string
	// alternates reports whether another MAC address answers in turn, and changed is when one replaced the other last.
	alternates bool
	changed    time.Time
}

// takenAddresses finds hosts that answer for addresses that are leased to others, by the ARP requests of our pods.
func takenAddresses(s *Site) []Finding {
	vms := s.vmInterfaces()
	own := map[string]string{} // MAC addresses of VMs by interface
	for mac, vm := range vms {
		own[vm] = strings.ToLower(mac)
	}
	taken := map[string]map[netip.Addr]takenAddress{} // by MAC address
	list, _ := s.leases()
	for _, l := range list {
		if l.State != dhcplease.StateBound || l.MAC == "" || s.facts.Taken.Sub(l.Since) < takenGracePeriod {
			continue
		}
		for mac, c := range s.claims(l.Address) {
			vm := vms[mac]
			if strings.EqualFold(mac, l.MAC) || l.VM != "" && (mac == own[l.VM+"/"+l.Interface] || strings.HasPrefix(vm, l.VM+"/")) {
				continue // another interface of the VM may answer as well
			}
			if taken[mac] == nil {
				taken[mac] = map[netip.Addr]takenAddress{}
			}
			taken[mac][l.Address] = takenAddress{l, c}
		}
	}
	var findings []Finding
	for _, mac := range slices.Sorted(maps.Keys(taken)) {
		addresses := slices.SortedFunc(maps.Keys(taken[mac]), netip.Addr.Compare)
		first := taken[mac][addresses[0]].lease
		ref := leaseRef(first)
		if first.VM != "" {
			ref = machineRef(first.VM)
		}
		texts := make([]string, len(addresses))
		var evidence []string
		for i, a := range addresses {
			t := taken[mac][a]
			texts[i] = fmt.Sprintf("%s, which is leased to %s", a, clientOf(t.lease))
			text := fmt.Sprintf("%s answers ARP requests of Pod %s for %s", mac, t.claim.pod, a)
			if t.claim.alternates {
				text += ", in turn with another host, until " + formatTime(t.claim.changed) + " at least"
			}
			if len(evidence) < maxQuoted {
				evidence = append(evidence, text)
			}
		}
		more := ""
		if len(texts) > 1 {
			more = fmt.Sprintf(", and %d more leased addresses", len(texts)-1)
		}
		f := failed(ref, "find the host in the MAC address table of the switch, and give it another address or disable its proxy ARP; addresses of static hosts must be outside of the DHCP ranges, or excluded (infraComponents.dhcp.exclude)",
			"another host, with %s, uses %s%s: packets to the client go to the other host", describeMAC(mac, vms), texts[0], more).because(evidence...)
		if len(addresses) < minSilentHosts { // too few to explain what checks of several hosts find
			f = f.of(hostScope(addresses[0]))
		}
		findings = append(findings, f)
	}
	return findings
}

// clientOf names the client of a lease, with its MAC address.
func clientOf(l *leases.Lease) string {
	if l.VM != "" {
		return fmt.Sprintf("VM %s with MAC address %s", l.VM, l.MAC)
	}
	return "the client with MAC address " + l.MAC
}

// claims returns the MAC addresses, in lower case, that answer ARP requests of our pods for an address, or have answered in
// turn within the last ten minutes, each with a pod.
func (s *Site) claims(a netip.Addr) map[string]claim {
	all := map[string]claim{}
	for _, observer := range neighborMetrics {
		for _, x := range s.metrics(observer.page) {
			for _, metric := range answerMetrics(observer.metric) {
				x.value.each(metric, func(labels map[string]string, value float64) {
					if mac := strings.ToLower(labels["mac"]); value == 1 && labels["address"] == a.String() && !all[mac].alternates {
						all[mac] = claim{pod: x.pod.Name}
					}
				})
			}
			var changed time.Time
			x.value.each(observer.metric+changedSuffix, func(labels map[string]string, value float64) {
				if labels["address"] == a.String() {
					changed = time.Unix(int64(value), 0)
				}
			})
			x.value.each(observer.metric+alternatingSuffix, func(labels map[string]string, _ float64) {
				if labels["address"] == a.String() {
					for _, mac := range []string{labels["mac"], labels["other"]} {
						all[strings.ToLower(mac)] = claim{x.pod.Name, true, changed}
					}
				}
			})
		}
	}
	return all
}
