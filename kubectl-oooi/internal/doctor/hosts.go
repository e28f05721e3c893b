package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

func init() {
	after := []string{"OOOI-POD-002", "OOOI-POD-009", "OOOI-NET-003", "OOOI-LNK-001", "OOOI-LNK-002", "OOOI-LNK-004", "OOOI-LNK-005", "OOOI-LNK-007", "OOOI-LNK-008", "OOOI-LNK-011", "OOOI-LNK-012"}
	register(
		Check{
			Code: "OOOI-LNK-009", Title: "our pods reach the same hosts on the VLAN", After: after,
			Reads: slices.Concat(in(AtInfra, pods), pagesIn(AtInfra, append(slices.Clone(daemonMetrics), dhcpState)...)), NotApplicable: noServingPods(daemonMetrics...),
			Run: checkIsolation,
		},
		Check{
			Code: "OOOI-LNK-010", Component: v1alpha1.ComponentProxy, Title: "the proxy accepts connections over the VLAN",
			After: append(slices.Clone(after), "OOOI-LNK-003", "OOOI-LNK-009", "OOOI-PRX-003", "OOOI-PRX-006", "OOOI-PRX-011", "OOOI-PRX-013", "OOOI-PRX-016"),
			Reads: slices.Concat(in(AtInfra, pods), pagesIn(AtInfra, dnsMetrics)), NotApplicable: noServingPods(dnsMetrics),
			Run: checkProxyPorts,
		},
		Check{
			Code: "OOOI-LNK-016", Component: v1alpha1.ComponentProxy, Title: "answers of the proxy reach clients",
			After: append(slices.Clone(after), "OOOI-LNK-003", "OOOI-LNK-009", "OOOI-LNK-010", "OOOI-PRX-013", "OOOI-PRX-016"),
			Reads: slices.Concat(in(AtInfra, pods), pagesIn(AtInfra, xdsdState)), NotApplicable: noServingPods(xdsdState),
			Run: checkUnfinished,
		},
	)
}

// Suffixes of the metrics of neighbours.Monitor for other hosts, and for the time since which the state of an address has
// not changed.
const (
	neighborSuffix = "_neighbor"
	hostSuffix     = "_host"
	sinceSuffix    = "_since_timestamp_seconds"
)

// vlanMetric returns the metric of neighbours.Monitor with another suffix than that of neighbors.
func vlanMetric(neighbor, suffix string) string {
	return strings.TrimSuffix(neighbor, neighborSuffix) + suffix
}

// answerMetrics returns the metrics of which hosts answer a pod: neighbors, and other hosts.
func answerMetrics(neighbor string) []string {
	return []string{neighbor, vlanMetric(neighbor, hostSuffix)}
}

// A sighting is what one of our pods knows about a host on the VLAN.
type sighting struct {
	pod *corev1.Pod
	// mac is the MAC address that answers, empty if none does, and since the time since which that has not changed.
	mac   string
	since time.Time
	last  lastAnswer
	// newest is the time of the newest answer of any host to the pod.
	newest time.Time
}

// ownAddresses returns the addresses of our components on the VLAN, including the proxy's floating address.
func (s *Site) ownAddresses() []netip.Addr {
	var own []netip.Addr
	for _, c := range s.components() {
		own = append(own, c.addresses...)
	}
	if s.Model != nil && s.Model.Proxy != nil {
		own = append(own, s.Model.Proxy.VLAN...)
	}
	return own
}

// sightings returns what our pods know about each host on the VLAN that is none of them.
func (s *Site) sightings() map[netip.Addr][]sighting {
	own := s.ownAddresses()
	all := map[netip.Addr][]sighting{}
	for _, observer := range neighborMetrics {
		for _, x := range s.metrics(observer.page) {
			answers := lastAnswers(x.value, observer.metric)
			newest := time.Time{}
			for _, last := range answers {
				newest = later(newest, last.at)
			}
			since := map[string]time.Time{}
			x.value.each(observer.metric+sinceSuffix, func(labels map[string]string, value float64) {
				since[labels["address"]] = time.Unix(int64(value), 0)
			})
			for _, metric := range answerMetrics(observer.metric) {
				x.value.each(metric, func(labels map[string]string, value float64) {
					a, err := netip.ParseAddr(labels["address"])
					began, known := since[labels["address"]] // earlier releases do not export it
					if _, pod, _ := s.owner(a); err != nil || !known || pod != nil || slices.Contains(own, a) {
						return
					}
					one := sighting{pod: x.pod, since: began, last: answers[a], newest: newest}
					if value == 1 {
						one.mac = labels["mac"]
					}
					all[a] = append(all[a], one)
				})
			}
		}
	}
	return all
}

// A host counts as isolated from a pod if it answered another one for as long as it did not answer the pod: longer than two
// rounds of probes, or if it refuses no datagrams, longer than the kernel keeps the MAC address of a host that is gone.
const (
	minIsolated    = 40 * time.Second
	minIsolatedARP = 90 * time.Second
)

// maxUnheard is longer than two rounds of probes: a host that refused datagrams, and has not done so for longer than another
// host, may be gone.
const maxUnheard = 35 * time.Second

// isolated returns the sighting of a host that has answered for long enough while it did not answer the pod of silent; nil if
// there is none.
func isolated(silent *sighting, all []sighting) *sighting {
	if silent.mac != "" {
		return nil
	}
	for i := range all {
		o := &all[i]
		required := minIsolatedARP
		if o.last.by == byRefusal {
			required = minIsolated
		}
		gone := o.last.by == byRefusal && o.newest.Sub(o.last.at) >= maxUnheard // the kernel keeps its MAC address
		if o.mac != "" && !gone && o.last.at.Sub(later(o.since, silent.since)) >= required {
			return o
		}
	}
	return nil
}

// minHeard is longer than a round of probes.
const minHeard = 20 * time.Second

// answersAfter reports whether a host has certainly answered a pod after another one became silent for it: since is when that
// was noticed, or the last answer of a silent host that refused datagrams.
func (l lastAnswer) answersAfter(silent lastAnswer, since time.Time) bool {
	required := minIsolatedARP
	switch {
	case l.by != byRefusal:
	case silent.by == byRefusal:
		required = minHeard
	default:
		required = 0
	}
	return l.at.Sub(since) >= required
}

// isSilent reports whether an address that no longer answers a pod is at fault, and not the VLAN, as far as that is certain:
// it answers no other pod of ours, and another host has answered one since, or none has ever.
func isSilent(sightings map[netip.Addr][]sighting, a netip.Addr, pod *corev1.Pod) bool {
	at := slices.IndexFunc(sightings[a], func(o sighting) bool { return o.pod == pod })
	if at < 0 { // earlier releases do not export since when
		return true
	}
	silent := sightings[a][at]
	if slices.ContainsFunc(sightings[a], func(o sighting) bool { return o.mac != "" }) {
		return false
	}
	heard := false
	for other, all := range sightings {
		for _, o := range all {
			switch {
			case other == a || o.last.at.IsZero():
			case o.last.answersAfter(silent.last, silent.since):
				return true
			default:
				heard = true
			}
		}
	}
	return !heard
}

// A sightline has the hosts on the VLAN that answer a pod, and those that only answer other pods of ours.
type sightline struct {
	pod      *corev1.Pod
	reached  int
	isolated []netip.Addr
	// silent are the sightings of isolated hosts by the pod, and others those by pods that these hosts answer.
	silent, others []*sighting
}

// checkIsolation finds pods that do not reach hosts on the VLAN that other pods of ours reach, although our pods reach each
// other: the ports of a bridge or switch are isolated from each other, or a filter is between them.
func checkIsolation(s *Site) []Finding {
	sightings := s.sightings()
	lines := map[string]*sightline{}
	for _, a := range slices.SortedFunc(maps.Keys(sightings), netip.Addr.Compare) {
		if s.explained[hostScope(a)] != "" {
			continue
		}
		for i := range sightings[a] {
			one := &sightings[a][i]
			line := lines[one.pod.Name]
			if line == nil {
				line = &sightline{pod: one.pod}
				lines[one.pod.Name] = line
			}
			if one.mac != "" {
				line.reached++
			}
			if other := isolated(one, sightings[a]); other != nil {
				line.isolated, line.others, line.silent = append(line.isolated, a), append(line.others, other), append(line.silent, one)
			}
		}
	}
	vms := s.vmInterfaces()
	var findings []Finding
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		line := lines[name]
		if len(line.isolated) == 0 {
			continue
		}
		reached := fmt.Sprintf("none of the other hosts on the VLAN, of which other pods of ours reach %d", len(line.isolated))
		if line.reached > 0 {
			reached = fmt.Sprintf("%d of the other hosts on the VLAN, but not %d that other pods of ours reach", line.reached, len(line.isolated))
		}
		f := failed(podRef(line.pod), isolationRemedy(line.pod),
			"the pod reaches our pods and %s: packets between its port and the ports of these hosts are dropped", reached)
		for i, a := range line.isolated[:min(len(line.isolated), maxIsolatedHosts)] {
			other := line.others[i]
			host := fmt.Sprintf("%s (MAC address %s)", a, other.mac)
			if vm := vms[strings.ToLower(other.mac)]; vm != "" {
				host = fmt.Sprintf("%s (VM interface %s)", a, vm)
			}
			answer := "has never answered the pod"
			if last := line.silent[i].last; !last.at.IsZero() {
				answer = "answered the pod last at " + formatTime(last.at)
			}
			f = f.because(fmt.Sprintf("%s answers Pod %s on node %s, and %s", host, other.pod.Name, other.pod.Spec.NodeName, answer))
		}
		if more := len(line.isolated) - maxIsolatedHosts; more > 0 {
			f = f.because(fmt.Sprintf("%d more", more))
		}
		findings = append(findings, f.of(componentOf(line.pod)))
	}
	return findings
}

// isolationRemedy is what to do about packets that are dropped between a pod and another host on the VLAN.
func isolationRemedy(pod *corev1.Pod) string {
	return fmt.Sprintf("compare the ports of the pods on the bridge of node %s, and those of the switch: port isolation ('bridge -d link show' shows isolated), private VLANs, ACLs, and filters of family bridge or netdev ('nft list ruleset')", pod.Spec.NodeName)
}

// maxIsolatedHosts limits the hosts in the evidence of a finding.
const maxIsolatedHosts = 4

// A portResult is the result of connections of one of our pods to a TCP port on the VLAN.
type portResult struct {
	pod     *corev1.Pod
	address netip.AddrPort
	// result is accepted, refused or timeout.
	result string
}

const portAccepted = "accepted"

// portResults returns the results in a metric of a page, sorted by port and pod.
func (s *Site) portResults(p page, metric string) []portResult {
	var list []portResult
	for _, x := range s.metrics(p) {
		x.value.each(metric, func(labels map[string]string, _ float64) {
			if a, err := netip.ParseAddrPort(labels["address"] + ":" + labels["port"]); err == nil {
				list = append(list, portResult{x.pod, a, labels["result"]})
			}
		})
	}
	slices.SortFunc(list, func(a, b portResult) int {
		return cmp.Or(a.address.Compare(b.address), strings.Compare(a.pod.Name, b.pod.Name))
	})
	return list
}

// checkProxyPorts finds ports of the proxy that accept no connections of the pods of DNS over the VLAN, by the address.
func checkProxyPorts(s *Site) []Finding {
	if slices.ContainsFunc(s.pods(v1alpha1.ComponentProxy), func(p *corev1.Pod) bool { return !s.settled(p, queryGracePeriod) }) {
		return nil // the probes may have reached the previous pod
	}
	byAddress := map[netip.Addr][]portResult{}
	var findings []Finding
	for _, r := range s.portResults(dnsMetrics, "coredns_vlan_port") {
		a, scope := r.address.Addr(), portScope(r.address.Port())
		if s.explained[scope] != "" && r.result != portAccepted {
			findings = append(findings, s.closedPorts(a, []portResult{r}).of(scope)) // explained
			continue
		}
		byAddress[a] = append(byAddress[a], r)
	}
	for _, a := range slices.SortedFunc(maps.Keys(byAddress), netip.Addr.Compare) {
		if f := s.closedPorts(a, byAddress[a]); f != nil {
			findings = append(findings, *f)
		}
	}
	return findings
}

// minUnfinished is how many handshakes of clients must be unfinished: a client that was switched off leaves some.
const minUnfinished = 3

// checkUnfinished finds clients that do not receive what the proxy answers to the first packet of their connections.
func checkUnfinished(s *Site) []Finding {
	own := s.ownAddresses()
	var findings []Finding
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		total := 0
		var clients, evidence []string
		var ports []uint16
		for _, u := range x.value.Unfinished {
			if _, pod, _ := s.owner(u.Client); pod != nil || !slices.Contains(own, u.Address.Addr()) {
				continue
			}
			total += u.Connections
			ports = append(ports, u.Address.Port())
			if client := u.Client.String(); !slices.Contains(clients, client) {
				clients = append(clients, client)
			}
			evidence = append(evidence, fmt.Sprintf("unfinished connections of %s to %s: %d", u.Client, u.Address, u.Connections))
		}
		if total < minUnfinished {
			continue
		}
		hosts := clients[0]
		if len(clients) > 1 {
			hosts = fmt.Sprintf("%d hosts, such as %s,", len(clients), clients[0])
		}
		slices.Sort(ports)
		f := failed(podRef(x.pod), "find what drops these packets: a stateful firewall or router that does not see both directions, since packets and replies take different paths; ACLs of the switch; clients that no longer exist, and forged source addresses, look the same for a minute",
			"connections of %s to TCP port %s do not complete: the proxy repeats its answer to their first packet, and receives no reply", hosts, joinPorts(slices.Compact(ports)))
		findings = append(findings, f.because(evidence[:min(len(evidence), maxIsolatedHosts)]...).of(v1alpha1.ComponentProxy))
	}
	return findings
}

// Remedies for TCP ports that accept no connections.
const (
	filteredRemedy = "find the filter: nftables rules of the proxy's node and in its pod ('nft list ruleset'), MultiNetworkPolicies of the pod, ACLs and port security of the switch; or find a device with the MAC address of the pod, which the switch then learns at two ports"
	refusedRemedy  = "find what refuses the connections: a filter that rejects them ('nft list ruleset' on the proxy's node and in its pod), or another host with the address"
)

// closedPorts returns a finding for the ports of an address of the proxy that do not accept all connections, nil if there
// are none.
func (s *Site) closedPorts(a netip.Addr, results []portResult) *Finding {
	var accepted, closed []uint16
	var evidence []string
	remedy, verb := refusedRemedy, "rejects"
	for _, r := range results {
		if r.result == portAccepted {
			accepted = append(accepted, r.address.Port())
			continue
		}
		closed = append(closed, r.address.Port())
		if r.result == "timeout" {
			remedy, verb = filteredRemedy, "drops"
		}
		evidence = append(evidence, fmt.Sprintf("connections of Pod %s to %s: %s", r.pod.Name, r.address, r.result))
	}
	if len(closed) == 0 {
		return nil
	}
	slices.Sort(closed)
	closed, accepted = slices.Compact(closed), slices.Compact(accepted)
	f := failed(s.ownerRef(a), remedy, "the proxy's address %s accepts no connections over the VLAN at TCP port %s: %s", a, joinPorts(closed), filterOf(verb, accepted, closed)).because(evidence...)
	if names := s.namesAt(a, closed); len(names) > 0 {
		f = f.because("VMs connect there to " + strings.Join(names, ", "))
	}
	f = f.of(v1alpha1.ComponentProxy)
	return &f
}

// filterOf says what drops or rejects connections to closed ports, by the ports that accept connections.
func filterOf(verb string, accepted, closed []uint16) string {
	switch {
	case len(accepted) == 0:
		return "a filter " + verb + " them, although the host answers ARP requests"
	case slices.ContainsFunc(closed, func(p uint16) bool { return slices.Contains(accepted, p) }):
		return "a filter " + verb + " those of some pods"
	}
	return fmt.Sprintf("a filter %s them, since those to port %s are accepted", verb, joinPorts(accepted))
}

func joinPorts(ports []uint16) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = strconv.Itoa(int(p))
	}
	return strings.Join(texts, ", ")
}

// namesAt returns names that resolve to an address on the VLAN and to which VMs connect at one of the ports, sorted.
func (s *Site) namesAt(a netip.Addr, ports []uint16) []string {
	var names []string
	for _, n := range s.vlanNames() {
		if slices.Contains(n.Addresses, a) && slices.ContainsFunc(ports, func(p uint16) bool { _, ok := n.Ports[p]; return ok }) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	if more := len(names) - maxNames; more > 0 {
		names = append(names[:maxNames], fmt.Sprintf("%d more", more))
	}
	return names
}
