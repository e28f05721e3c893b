package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

func init() {
	after := []string{"OOOI-POD-002", "OOOI-NET-003"}
	interfaces := slices.Concat(in(AtInfra, pods), pagesIn(AtInfra, daemonMetrics...))
	neighbors := slices.Concat(pagesIn(AtInfra, xdsdMetrics), optional(pagesIn(AtInfra, dhcpMetrics, dnsMetrics)[1:]))
	observers := slices.Concat(in(AtInfra, pods), pagesIn(AtInfra, xdsdMetrics, dhcpMetrics, dnsMetrics, dhcpState))
	register(
		Check{
			Code: "OOOI-LNK-001", Title: "the VLAN interfaces of our pods have a carrier", After: after, Reads: interfaces, NotApplicable: noServingPods(daemonMetrics...),
			Run: checkCarriers,
		},
		Check{
			Code: "OOOI-LNK-002", Title: "the VLAN interfaces of our pods have their addresses", After: append(after, "OOOI-LNK-001"), Reads: interfaces, NotApplicable: noServingPods(daemonMetrics...),
			Run: checkInterfaceAddresses,
		},
		Check{
			Code: "OOOI-LNK-003", Title: "the VLAN interfaces of our pods have the same MTU", After: append(after, "OOOI-LNK-001"), Reads: interfaces, NotApplicable: noServingPods(daemonMetrics...),
			Run: checkInterfaceMTUs,
		},
		Check{
			Code: "OOOI-LNK-004", Title: "our components reach each other on the VLAN", After: append(after, "OOOI-LNK-001", "OOOI-LNK-002", "OOOI-LNK-005", "OOOI-LNK-008", "OOOI-LNK-011"), Reads: neighbors, NotApplicable: noPods(xdsdMetrics, AtInfra),
			Run: checkNeighbors,
		},
		Check{
			Code: "OOOI-LNK-005", Title: "no other host on the VLAN has an IP or MAC address of our pods, or the address of the gateway or apps", After: append(after, "OOOI-LNK-002"), Reads: slices.Concat(observers, in(AtInfra, infras), optional(pagesIn(AtInfra, holderState)[1:])), NotApplicable: noServingPods(daemonMetrics...),
			Run: checkNeighborMACs,
		},
		Check{
			Code: "OOOI-LNK-011", Title: "packets of our pods to the VLAN leave through its interface", After: append(after, "OOOI-LNK-001", "OOOI-LNK-002"), Reads: slices.Concat(interfaces, in(AtInfra, attachments)), NotApplicable: noServingPods(daemonMetrics...),
			Run: checkDivertedRoutes,
		},
		Check{
			Code: "OOOI-LNK-007", Title: "hosts other than our pods answer on the VLAN", After: append(after, "OOOI-LNK-001", "OOOI-LNK-002", "OOOI-LNK-004", "OOOI-LNK-005", "OOOI-LNK-008", "OOOI-LNK-011"), Reads: observers, NotApplicable: noServingPods(daemonMetrics...),
			Run: checkUplink,
		},
	)
}

// vlanInterface is the VLAN interface of a pod, as the kernel reports it.
type vlanInterface struct {
	pod       *corev1.Pod
	component string
	// known is false if the daemon exports no interface, as earlier releases do; exists is false if it exports others.
	known, exists bool
	up            bool
	mtu           int
	addresses     []netip.Prefix
}

// vlanInterfaces returns the VLAN interfaces of all pods whose metrics page answered.
func (s *Site) vlanInterfaces() []vlanInterface {
	var list []vlanInterface
	for _, page := range daemonMetrics {
		for _, d := range s.metrics(page) {
			i := vlanInterface{pod: d.pod, component: page.component}
			d.value.each("oooi_interface_up", func(labels map[string]string, value float64) {
				i.known = true
				if labels["interface"] == render.ProbeDevice {
					i.exists, i.up = true, value == 1
				}
			})
			d.value.each("oooi_interface_mtu_bytes", func(labels map[string]string, value float64) {
				if labels["interface"] == render.ProbeDevice {
					i.mtu = int(value)
				}
			})
			d.value.each("oooi_interface_address", func(labels map[string]string, _ float64) {
				if p, err := netip.ParsePrefix(labels["address"]); err == nil && labels["interface"] == render.ProbeDevice {
					i.addresses = append(i.addresses, p)
				}
			})
			if i.known {
				list = append(list, i)
			}
		}
	}
	return list
}

// recreateRemedy returns the remedy for an interface that differs from what Multus reported.
func (i vlanInterface) recreateRemedy() string {
	return fmt.Sprintf("check the bridge and the CNI plugins of node %s; delete the pod to create the interface again: %s", i.pod.Spec.NodeName, restartPod(i.pod).Command)
}

// checkCarriers finds VLAN interfaces that are missing, down or without a carrier.
func checkCarriers(s *Site) []Finding {
	var findings []Finding
	for _, i := range s.vlanInterfaces() {
		switch {
		case !i.exists:
			findings = append(findings, failed(podRef(i.pod), i.recreateRemedy(), "the pod has no interface %s: %s is not on the VLAN", render.ProbeDevice, i.component).of(i.component).fixedBy(restartPod(i.pod)))
		case !i.up:
			findings = append(findings, failed(podRef(i.pod), i.recreateRemedy(), "interface %s of the pod is down or has no carrier: %s cannot be reached on the VLAN", render.ProbeDevice, i.component).of(i.component).fixedBy(restartPod(i.pod)))
		}
	}
	return findings
}

// checkInterfaceAddresses finds VLAN interfaces that lost an address that Multus assigned.
func checkInterfaceAddresses(s *Site) []Finding {
	var findings []Finding
	for _, i := range s.vlanInterfaces() {
		wanted, err := read.PodAddresses(i.pod)
		if err != nil || !i.exists { // reported by OOOI-NET-003 and OOOI-LNK-001
			continue
		}
		for _, a := range wanted {
			if !slices.ContainsFunc(i.addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
				findings = append(findings, failed(podRef(i.pod), i.recreateRemedy(), "interface %s of the pod does not have address %s, although Multus assigned it", render.ProbeDevice, a).
					because("its addresses: "+joinPrefixes(i.addresses)).of(i.component).fixedBy(restartPod(i.pod)))
			}
		}
	}
	return findings
}

func joinPrefixes(prefixes []netip.Prefix) string {
	if len(prefixes) == 0 {
		return "none"
	}
	var texts []string
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

// checkInterfaceMTUs finds VLAN interfaces with a smaller MTU than others: a veth drops larger packets without an ICMP
// message, so that small packets pass and handshakes with large certificates time out.
func checkInterfaceMTUs(s *Site) []Finding {
	list := s.vlanInterfaces()
	largest := 0
	for _, i := range list {
		largest = max(largest, i.mtu)
	}
	var findings []Finding
	for _, i := range list {
		if i.exists && i.mtu < largest {
			findings = append(findings, failed(podRef(i.pod), i.recreateRemedy(), "interface %s of the pod has MTU %d, and interfaces of other pods on the VLAN have %d: larger packets are dropped, such as large TLS certificates",
				render.ProbeDevice, i.mtu, largest).of(i.component))
		}
	}
	return findings
}

// divertedRoutesMetric has the routes by which packets from an address of an interface do not reach a part of its network
// directly.
const divertedRoutesMetric = "oooi_interface_diverted_route"

// checkDivertedRoutes finds pods with a route that leads a part of the VLAN elsewhere. It names the
// NetworkAttachmentDefinition that has the route.
func checkDivertedRoutes(s *Site) []Finding {
	var findings []Finding
	for _, page := range daemonMetrics {
		for _, d := range s.metrics(page) {
			d.value.each(divertedRoutesMetric, func(labels map[string]string, _ float64) {
				if labels["interface"] == render.ProbeDevice {
					findings = append(findings, s.divertedRoute(d.pod, labels["destination"], labels["gateway"], labels["device"]))
				}
			})
		}
	}
	return findings
}

func (s *Site) divertedRoute(pod *corev1.Pod, destination, gateway, device string) Finding {
	target := "leave through interface " + device
	switch {
	case gateway != "":
		target = fmt.Sprintf("leave through gateway %s on interface %s", gateway, device)
	case device == "":
		target = "are discarded"
	}
	component := componentOf(pod)
	f := failed(podRef(pod), "find what added the route: ip route show table all, in the network namespace of the pod; delete the pod to create its network again: "+restartPod(pod).Command,
		"a route of the pod diverts packets to %s, which is on the VLAN: they %s", destination, target).fixedBy(restartPod(pod))
	for _, u := range s.list(attachments, AtInfra) {
		config, _, _ := unstructured.NestedString(u.Object, "spec", "config")
		if u.GetLabels()[v1alpha1.LabelComponent] == component && strings.Contains(config, strconv.Quote(destination)) {
			f.Object, f.Fix = refTo(u), nil
			f.Remedy = "remove the route from spec.config: run 'kubectl oooi setup -f FILE' with the Infra's file, and delete the pod: " + restartPod(pod).Command
			f.Message = fmt.Sprintf("spec.config has a route that diverts packets of Pod %s to %s, which is on the VLAN: they %s", pod.Name, destination, target)
		}
	}
	return f.of(component)
}

// Metrics of the hosts that answer ARP requests of our daemons.
const (
	xdsdNeighbor      = "xdsd_vlan_neighbor"
	dhcpNeighbor      = "coredhcp_vlan_neighbor"
	dnsNeighbor       = "coredns_vlan_neighbor"
	alternatingSuffix = "_alternating"
	changedSuffix     = "_changed_timestamp_seconds"
	lastAnswerSuffix  = "_last_answer_timestamp_seconds"
)

// neighborMetrics are the pages and metrics of all daemons that probe their neighbors.
var neighborMetrics = []struct {
	page   page
	metric string
}{{xdsdMetrics, xdsdNeighbor}, {dhcpMetrics, dhcpNeighbor}, {dnsMetrics, dnsNeighbor}}

// neighbor is an address on the VLAN, and the MAC address that answers for it; empty if no host does.
type neighbor struct {
	address netip.Addr
	mac     string
}

// neighbors returns the neighbors that each pod has probed, sorted by address, by the metric of a page.
func (s *Site) neighbors(p page, metric string) []podPage[[]neighbor] {
	var list []podPage[[]neighbor]
	for _, x := range s.metrics(p) {
		var seen []neighbor
		x.value.each(metric, func(labels map[string]string, value float64) {
			a, err := netip.ParseAddr(labels["address"])
			switch {
			case err != nil:
			case value == 1:
				seen = append(seen, neighbor{a, labels["mac"]})
			default:
				seen = append(seen, neighbor{address: a})
			}
		})
		slices.SortFunc(seen, func(a, b neighbor) int { return a.address.Compare(b.address) })
		list = append(list, podPage[[]neighbor]{x.pod, seen})
	}
	return list
}

// owner returns the pod to which Multus assigned an address on the VLAN, with its component and the interface.
func (s *Site) owner(a netip.Addr) (string, *corev1.Pod, read.PodInterface) {
	for _, c := range s.components() {
		for _, p := range s.pods(c.name) {
			interfaces, err := read.PodInterfaces(p)
			if err != nil {
				continue
			}
			for _, i := range interfaces {
				if slices.Contains(i.Addresses, a) {
					return c.name, p, i
				}
			}
		}
	}
	return "", nil, read.PodInterface{}
}

// ownerRef returns a reference to the pod of owner, or to the Infra if there is none.
func (s *Site) ownerRef(a netip.Addr) model.Ref {
	if _, p, _ := s.owner(a); p != nil {
		return podRef(p)
	}
	return s.ref()
}

// unhearing returns the settled pods that no host on the VLAN answers, although they probe several addresses: at least one of
// our pods, and others of hosts that once answered. It returns them by node.
func (s *Site) unhearing() map[string][]*corev1.Pod {
	byNode := map[string][]*corev1.Pod{}
	for _, observer := range neighborMetrics {
		answered := map[string]map[netip.Addr]lastAnswer{}
		for _, x := range s.metrics(observer.page) {
			answered[x.pod.Name] = lastAnswers(x.value, observer.metric)
		}
		silent, peers, reached := map[*corev1.Pod]int{}, map[*corev1.Pod]bool{}, map[*corev1.Pod]bool{}
		for _, metric := range answerMetrics(observer.metric) {
			for _, x := range s.neighbors(observer.page, metric) {
				for _, n := range x.value {
					_, owner, _ := s.owner(n.address)
					_, before := answered[x.pod.Name][n.address]
					peer := owner != nil && s.settled(owner, queryGracePeriod)
					switch {
					case n.mac != "":
						reached[x.pod] = true
					case before || peer:
						silent[x.pod]++
						peers[x.pod] = peers[x.pod] || peer
					}
				}
			}
		}
		for pod, count := range silent {
			if count > 1 && peers[pod] && !reached[pod] && s.settled(pod, queryGracePeriod) {
				byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], pod)
			}
		}
	}
	for _, list := range byNode {
		slices.SortFunc(list, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	}
	return byNode
}

// detached returns a finding about the pods of a node that no host answers, not even the others: a filter or a port of the
// switch would not separate pods on one bridge.
func (s *Site) detached(node string, list []*corev1.Pod) Finding {
	var names, commands []string
	for _, pod := range list {
		names, commands = append(names, pod.Name), append(commands, restartPod(pod).Command)
	}
	return failed(model.Ref{Kind: nodes.Kind, Name: node},
		"on the node, list the ports of the VLAN's bridge with 'bridge link': those of the pods are missing if the bridge was created again, by nmstate or NetworkManager for instance; delete the pods one at a time, CNI attaches each new one: "+strings.Join(commands, "; ")+"; ports of VMs on the node may be missing as well, until they are migrated or restarted",
		"no host on the VLAN answers Pods %s, which do not answer each other either, although their interfaces are up: their ports are probably no longer attached to the bridge", strings.Join(names, ", "))
}

// checkNeighbors finds pods that do not answer a proxy's ARP requests on the VLAN. If none answers, the proxy's own
// connection to the VLAN is the cause, and if this holds for several pods of a node, that of the node's pods.
func checkNeighbors(s *Site) []Finding {
	var findings []Finding
	explained := map[string]bool{} // names of pods
	unhearing := s.unhearing()
	for _, node := range slices.Sorted(maps.Keys(unhearing)) {
		if len(unhearing[node]) < 2 {
			continue
		}
		findings = append(findings, s.detached(node, unhearing[node]))
		for _, pod := range unhearing[node] {
			explained[pod.Name] = true
		}
	}
	silent := map[netip.Addr][]string{} // proxy pods that get no answer
	for _, x := range s.neighbors(xdsdMetrics, xdsdNeighbor) {
		if explained[x.pod.Name] {
			continue
		}
		var unanswered []netip.Addr
		reached := false
		for _, n := range x.value {
			if _, pod, _ := s.owner(n.address); n.mac == "" && pod != nil && !explained[pod.Name] && s.settled(pod, queryGracePeriod) { // others are the gateway and floating addresses
				unanswered = append(unanswered, n.address)
			}
			reached = reached || n.mac != ""
		}
		if len(unanswered) > 1 && !reached {
			findings = append(findings, failed(podRef(x.pod), s.vlanRemedy(v1alpha1.ComponentProxy), "no host on the VLAN answers ARP requests of the pod, although its interface is up: the pod is on another VLAN or bridge, or a filter drops its packets").
				because("no answer: "+joinAddresses(unanswered)).of(v1alpha1.ComponentProxy))
			continue
		}
		for _, a := range unanswered {
			if s.isPeerSilent(x.pod, a) {
				silent[a] = append(silent[a], x.pod.Name)
			}
		}
	}
	for _, c := range s.components() {
		for _, a := range c.addresses {
			if len(silent[a]) == 0 {
				continue
			}
			findings = append(findings, failed(s.ownerRef(a), s.vlanRemedy(c.name), "%s of %s does not answer ARP requests on the VLAN, although its interface is up: the pod is on another VLAN or bridge, or a filter drops its packets", a, c.name).
				because("requested by Pod "+strings.Join(silent[a], ", ")+", which other hosts answer").of(c.name))
		}
	}
	return findings
}

// isPeerSilent reports whether an address of our pods that no longer answers a pod of the proxy is at fault, and not the
// proxy's connection to the VLAN, as far as that is certain: another host has answered the proxy since, or none has ever.
func (s *Site) isPeerSilent(pod *corev1.Pod, a netip.Addr) bool {
	for _, x := range s.metrics(xdsdMetrics) {
		if x.pod != pod {
			continue
		}
		since := time.Time{}
		x.value.each(xdsdNeighbor+sinceSuffix, func(labels map[string]string, value float64) {
			if labels["address"] == a.String() {
				since = time.Unix(int64(value), 0)
			}
		})
		answers := lastAnswers(x.value, xdsdNeighbor)
		silent := answers[a]
		delete(answers, a)
		others := slices.Collect(maps.Values(answers))
		return since.IsZero() || len(others) == 0 || slices.ContainsFunc(others, func(o lastAnswer) bool { return o.answersAfter(silent, since) })
	}
	return true
}

// checkNeighborMACs finds addresses of our pods for which another host answers, by what our pods have probed: none can probe
// its own address. If the kernel of the pods knows the right host, only 'xdsd hold' finds another one. It also finds a
// gateway for which a VM answers, addresses for which two hosts answer in turn, and hosts that have the MAC address of a pod.
func checkNeighborMACs(s *Site) []Finding {
	vms := s.vmInterfaces()
	describe := func(mac string) string {
		if vm := vms[strings.ToLower(mac)]; vm != "" {
			return fmt.Sprintf("VM interface %s, with MAC address %s,", vm, mac)
		}
		return fmt.Sprintf("another host on the VLAN, with MAC address %s,", mac)
	}
	const remedy = "find the host by its MAC address, in the switch or with 'kubectl get vmi -A -o yaml', and give it another address"
	var gateway netip.Addr
	if s.Model != nil {
		gateway = s.Model.Gateway()
	}
	var findings []Finding
	found := map[netip.Addr]bool{}
	add := func(a netip.Addr, f Finding) {
		if !found[a] {
			found[a] = true
			findings = append(findings, f)
		}
	}
	for _, observer := range neighborMetrics {
		for _, x := range s.neighbors(observer.page, observer.metric) {
			requested := "requested by Pod " + x.pod.Name
			for _, n := range x.value {
				component, pod, i := s.owner(n.address)
				switch {
				case n.mac == "":
				case n.address == gateway && vms[strings.ToLower(n.mac)] != "":
					add(gateway, failed(s.ref(), remedy, "%s answers ARP requests for the gateway's address %s", describe(n.mac), gateway).because(requested).of(gatewayComponent))
				case pod == nil || i.MAC == "" || strings.EqualFold(i.MAC, n.mac) || s.age(pod) < neighborGracePeriod:
				default:
					add(n.address, failed(podRef(pod), remedy, "%s answers ARP requests for address %s of the pod", describe(n.mac), n.address).
						because("the pod has MAC address "+i.MAC, requested).of(observedComponent(component)))
				}
			}
		}
		for _, x := range s.metrics(observer.page) {
			x.value.each(observer.metric+alternatingSuffix, func(labels map[string]string, _ float64) {
				a, err := netip.ParseAddr(labels["address"])
				component, pod, _ := s.owner(a)
				apps := s.isAppsAddress(a)
				if err != nil || pod == nil && a != gateway && !apps { // a floating address moves
					return
				}
				if apps {
					add(a, s.alternatingApps(a, labels["mac"], labels["other"], vms).because("requested by Pod "+x.pod.Name).of(appsScope))
					return
				}
				evidence := []string{"MAC addresses " + labels["mac"] + " and " + labels["other"], "requested by Pod " + x.pod.Name}
				if pod == nil {
					add(a, warned(s.ref(), remedy, "two hosts on the VLAN answer in turn for the gateway's address %s", a).because(evidence...))
					return
				}
				add(a, failed(podRef(pod), remedy, "two hosts on the VLAN answer in turn for address %s of the pod", a).because(evidence...).of(observedComponent(component)))
			})
		}
	}
	for _, c := range s.conflicts() {
		f := failed(s.ref(), remedy, "%s answers requests for the floating address %s, as the proxy's replica does", describe(c.MAC), c.Address)
		if c.pod != nil {
			f = failed(podRef(c.pod), remedy, "%s answers requests for address %s of the pod", describe(c.MAC), c.Address)
		}
		add(c.Address, f.because(c.evidence...).of(observedComponent(c.component)))
	}
	return append(s.sameMACs(), findings...)
}

// appsScope limits a finding to an apps address, which is no component: it blocks no other check.
const appsScope = "apps"

// isAppsAddress reports whether an address is one of apps.
func (s *Site) isAppsAddress(a netip.Addr) bool {
	apps := s.Infra.Status.AppsIngress
	return apps != nil && slices.ContainsFunc(apps.ExternalIPs, func(text string) bool {
		one, err := v1alpha1.ParseAddress(text)
		return err == nil && one == a
	})
}

// alternatingApps returns a finding for an apps address for which two hosts answer in turn.
func (s *Site) alternatingApps(a netip.Addr, mac, other string, vms map[string]string) Finding {
	return failed(s.ref(), "find both hosts by their MAC addresses, in the MAC address table of the switch, and remove the address from the one that does not serve apps; if both are nodes of the hosted cluster, see the logs of MetalLB's speakers",
		"two hosts on the VLAN have apps address %s, and answer in turn: %s and %s", a, describeMAC(mac, vms), describeMAC(other, vms))
}

// describeMAC returns a MAC address, with the VM interface that has it.
func describeMAC(mac string, vms map[string]string) string {
	if vm := vms[strings.ToLower(mac)]; vm != "" {
		return fmt.Sprintf("MAC address %s (VM interface %s)", mac, vm)
	}
	return "MAC address " + mac
}

// neighborGracePeriod is how long a pod may run before its MAC address must be known: xdsd and coredhcp probe every 15
// seconds, and the kernel keeps an entry for as long.
const neighborGracePeriod = 45 * time.Second

// gatewayComponent limits a finding to the gateway, which is no component: it blocks no other check.
const gatewayComponent = "gateway"

// observedComponent returns the component that a finding about the address of a component is limited to. That of the
// proxy is not limited: replies to the queries and probes of xdsd go to the other host.
func observedComponent(component string) string {
	if component == v1alpha1.ComponentProxy {
		return allComponents
	}
	return component
}

// vmInterfaces returns the interfaces of VMs that DHCP serves, "namespace/vm/interface", by MAC address.
func (s *Site) vmInterfaces() map[string]string {
	vms := map[string]string{}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		if d.value.Kubevirt != nil {
			for _, c := range d.value.Kubevirt.Clients {
				vms[c.MAC] = c.Interface
			}
		}
	}
	return vms
}

// lastAnswer is the last answer of a host on the VLAN for an address.
type lastAnswer struct {
	mac string
	at  time.Time
	// by is what proves it: byRefusal if the host refused a datagram, arp if the kernel knew its MAC address.
	by string
}

const byRefusal = "icmp"

// lastAnswers returns the last answer for each address for which a host has answered a pod.
func lastAnswers(metrics series, metric string) map[netip.Addr]lastAnswer {
	answers := map[netip.Addr]lastAnswer{}
	metrics.each(metric+lastAnswerSuffix, func(labels map[string]string, value float64) {
		if a, err := netip.ParseAddr(labels["address"]); err == nil {
			answers[a] = lastAnswer{labels["mac"], time.Unix(int64(value), 0), labels["by"]}
		}
	})
	return answers
}

// minSilentHosts is how many addresses of other hosts must have become silent, so that one that was switched off is no
// fault.
const minSilentHosts = 2

// checkUplink finds a VLAN on which our pods answer each other and other hosts no longer do: neither the gateway, nor an
// apps address, nor a VM with a lease. An address for which no host ever answered proves nothing.
func checkUplink(s *Site) []Finding {
	for _, sightings := range s.sightings() {
		if slices.ContainsFunc(sightings, func(one sighting) bool { return one.mac != "" }) {
			return nil
		}
	}
	own := s.ownAddresses()
	reached := map[string]bool{} // nodes of pods that answer each other
	silent := map[netip.Addr]lastAnswer{}
	for _, observer := range neighborMetrics {
		answers := map[string]map[netip.Addr]lastAnswer{}
		for _, x := range s.metrics(observer.page) {
			answers[x.pod.Name] = lastAnswers(x.value, observer.metric)
		}
		for _, x := range s.neighbors(observer.page, observer.metric) {
			for _, n := range x.value {
				last, answered := answers[x.pod.Name][n.address]
				_, pod, _ := s.owner(n.address)
				switch {
				case pod != nil && n.mac != "":
					reached[x.pod.Spec.NodeName], reached[pod.Spec.NodeName] = true, true
				case pod != nil || slices.Contains(own, n.address): // OOOI-LNK-004 finds silent pods
				case n.mac != "":
					return nil
				case answered:
					silent[n.address] = last
				}
			}
		}
	}
	if len(reached) == 0 || len(silent) < minSilentHosts {
		return nil
	}
	ref, of := s.ref(), "their nodes"
	if len(reached) == 1 {
		ref, of = model.Ref{Kind: nodes.Kind, Name: slices.Collect(maps.Keys(reached))[0]}, "their node"
	}
	macs := map[string]bool{}
	var evidence []string
	for _, a := range slices.SortedFunc(maps.Keys(silent), netip.Addr.Compare) {
		macs[silent[a].mac] = true
		evidence = append(evidence, fmt.Sprintf("%s no longer answers: last answer at %s, of MAC address %s", a, formatTime(silent[a].at), silent[a].mac))
	}
	message := fmt.Sprintf("only our own pods answer on the VLAN: the uplink of %s to the VLAN is down, or is in another VLAN", of)
	if len(macs) == 1 {
		message += ", or the only other host is down"
	}
	return []Finding{failed(ref, "check the interface that connects the VLAN's bridge to the switch, and the VLANs of the switch's port", "%s", message).because(evidence...)}
}
