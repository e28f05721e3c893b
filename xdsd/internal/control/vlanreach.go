package control

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/internal/problem"
)

const (
	// minSilent is longer than two rounds of probes, and minSilentARP longer than the kernel keeps the MAC address of a host
	// that is gone and refuses no datagrams.
	minSilent    = 40 * time.Second
	minSilentARP = 90 * time.Second
	// maxUnheard is how long a host that refuses datagrams answers, after its last refusal.
	maxUnheard = 35 * time.Second
	// minHeard is longer than a round of probes.
	minHeard = 20 * time.Second
)

// A sightline is what a pod reaches on the VLAN.
type sightline struct {
	pod *vlanPod
	// reached is the number of hosts that answer the pod, and others the number of those that are no pods of oooi.
	reached, others int
	// lost are the hosts that do not answer the pod, but are pods or answer another pod. gone is the number of others that
	// once answered.
	lost []lostHost
	gone int
}

// A lostHost is a host that does not answer a pod.
type lostHost struct {
	problem.Host

	// owner is the pod with the address; nil for another host. reachedBy is a pod that the host answers for longer than it
	// has been silent; nil if there is none.
	owner, reachedBy *vlanPod
}

// reachProblems returns the problems of pods that do not reach others or are not reached. If most hosts do not answer a pod,
// it is the cause; if a pod answers no other one, that pod is; otherwise the pod that does not reach what others reach.
func (f *vlanFacts) reachProblems(working []*vlanPod) []problem.Problem {
	var lines []*sightline
	for _, p := range working {
		lines = append(lines, f.sightline(working, p))
	}
	reported := map[*vlanPod]bool{}
	var list []problem.Problem
	report := func(pod *vlanPod, lost []lostHost, format string, args ...any) {
		reported[pod] = true
		p := problem.Failed(problem.PodUnreachable, pod.ref, format, args...)
		for _, h := range lost[:min(len(lost), 4)] {
			p = p.Because(h.describe(pod))
		}
		list = append(list, p)
	}
	for _, l := range lines {
		if l.reached == 0 && len(l.lost)+l.gone > 1 && slices.ContainsFunc(l.lost, func(h lostHost) bool { return h.owner != nil }) {
			report(l.pod, l.lost, "no host on the VLAN answers the pod, although its interface is up: its port is not attached to the bridge, or is on another "+
				"VLAN, or a filter drops its packets")
		}
	}
	for {
		lines = without(lines, reported)
		at := slices.IndexFunc(lines, func(l *sightline) bool { return countHosts(l.lost) > 1 && countHosts(l.lost) > l.reached })
		if at < 0 {
			break
		}
		worst := slices.MaxFunc(lines, func(a, b *sightline) int {
			return cmp.Or(cmp.Compare(len(a.lost)*(b.reached+len(b.lost)), len(b.lost)*(a.reached+len(a.lost))), cmp.Compare(b.others, a.others))
		})
		report(worst.pod, worst.lost, "most hosts on the VLAN that other pods reach do not answer the pod: its port is on another VLAN or bridge, or a "+
			"filter drops its packets")
	}
	for _, target := range working {
		silent, at := silentFor(lines, target)
		if at.IsValid() && !reported[target] && slices.ContainsFunc(silent, func(l *sightline) bool { return !reported[l.pod] }) {
			report(target, nil, "address %s of the pod does not answer ARP requests on the VLAN, although its interface is up: the pod is on another VLAN or "+
				"bridge, or a filter drops its packets", at)
			for _, l := range silent {
				list[len(list)-1] = list[len(list)-1].Because("requested by Pod " + l.pod.ref.Name)
			}
		}
	}
	for _, l := range without(lines, reported) {
		l.lost = slices.DeleteFunc(l.lost, func(h lostHost) bool { return h.reachedBy == nil })
		if n := countHosts(l.lost); n > 1 {
			report(l.pod, l.lost, "%d hosts on the VLAN answer other pods, and not this pod: packets between them and the pod are dropped", n)
			list[len(list)-1] = list[len(list)-1].WithRemedy("compare the ports of the pods on the bridge of the node, and those of the switch: port " +
				"isolation, private VLANs, ACLs, and filters of family bridge or netdev ('nft list ruleset')")
			continue
		}
		for _, p := range f.singleHostProblems(l) {
			if at := slices.IndexFunc(list, func(other problem.Problem) bool { return other.Message == p.Message }); at >= 0 {
				list[at] = list[at].Because(p.Evidence...) // of another pod
				continue
			}
			list = append(list, p)
		}
	}
	return list
}

// countHosts returns the number of different hosts: one with several addresses counts once.
func countHosts(lost []lostHost) int {
	hosts := map[string]bool{}
	for _, h := range lost {
		hosts[cmp.Or(h.LastMAC, h.Address.String())] = true
	}
	return len(hosts)
}

// singleHostProblems returns the problems of a single host that answers other pods, and not this one. The fault may be at
// either end: the problem is one of the site. A host that is neither a pod nor has an apps address concerns only itself.
func (f *vlanFacts) singleHostProblems(l *sightline) []problem.Problem {
	var list []problem.Problem
	for _, h := range l.lost {
		var p problem.Problem
		switch {
		case h.owner != nil:
			p = problem.Failed(problem.PodUnreachable, f.object, "Pod %s does not reach Pod %s on the VLAN, although other pods do", l.pod.ref.Name, h.owner.ref.Name).
				WithRemedy("compare the ports of both pods on the bridge, and those of their nodes in the switch: port isolation, private VLANs and filters")
		case slices.Contains(f.apps, h.Address):
			p = problem.Failed(problem.BackendUnreachable, f.object,
				"apps address %s does not answer all ARP requests on the VLAN: VMs that do not know its MAC address cannot reach apps", h.Address).
				WithRemedy("check the load balancer of the hosted cluster, such as MetalLB's speakers and its L2Advertisement, and filters of ARP on the nodes' " +
					"VMs and in the switch")
		default:
			continue
		}
		list = append(list, p.Because(h.describe(l.pod)))
	}
	return list
}

// without returns the sightlines of pods that are not reported, and removes reported pods from them.
func without(lines []*sightline, reported map[*vlanPod]bool) []*sightline {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l *sightline) bool { return reported[l.pod] })
	for _, l := range lines {
		l.lost = slices.DeleteFunc(l.lost, func(h lostHost) bool { return reported[h.owner] })
	}
	return lines
}

// sightline returns what a working pod reaches. It omits addresses of pods that do not work or are unknown, floating
// addresses, and hosts that stopped answering less than vlanGrace ago.
func (f *vlanFacts) sightline(working []*vlanPod, p *vlanPod) *sightline {
	l := &sightline{pod: p}
	for _, h := range p.view.Hosts {
		pod := owner(working, h.Address)
		if pod == p || pod == nil && (slices.Contains(f.own, h.Address) || owner(f.pods, h.Address) != nil) {
			continue
		}
		lost := lostHost{h, pod, nil}
		switch {
		case h.MAC != "":
			l.reached++
			if pod == nil {
				l.others++
			}
			continue
		case p.view.Age(h.Since) < vlanGrace:
			continue
		}
		if at := slices.IndexFunc(working, func(other *vlanPod) bool { return other != p && other.reaches(h.Address, p.view.Age(h.Since)) }); at >= 0 {
			lost.reachedBy = working[at]
		}
		switch {
		case lost.owner != nil || lost.reachedBy != nil:
			l.lost = append(l.lost, lost)
		case h.LastMAC != "":
			l.gone++
		}
	}
	return l
}

// reaches reports whether a host has certainly answered the pod, for long enough, since it became silent for another pod.
func (p *vlanPod) reaches(a netip.Addr, silent time.Duration) bool {
	at := slices.IndexFunc(p.view.Hosts, func(h problem.Host) bool { return h.Address == a })
	if at < 0 || p.view.Hosts[at].MAC == "" {
		return false
	}
	h, required := p.view.Hosts[at], minSilentARP
	if h.Refuses {
		required = minSilent
		for _, other := range p.view.Hosts {
			if other.LastAnswer.Sub(h.LastAnswer) >= maxUnheard {
				return false // only the kernel keeps its MAC address
			}
		}
	}
	return min(silent, p.view.Age(h.Since))-p.view.Age(h.LastAnswer) >= required
}

// silentFor returns the sightlines of pods that a pod does not answer, and its address. The address is zero if the pod answers
// another one, or if the fault may be elsewhere, because no other host has answered these pods since.
func silentFor(lines []*sightline, target *vlanPod) (silent []*sightline, address netip.Addr) {
	certain := false
	for _, l := range lines {
		for _, h := range l.pod.view.Hosts {
			if owner([]*vlanPod{target}, h.Address) == nil {
				continue
			}
			switch {
			case h.MAC != "":
				return nil, netip.Addr{}
			case slices.ContainsFunc(l.lost, func(lost lostHost) bool { return lost.Address == h.Address }):
				silent, address = append(silent, l), h.Address
				certain = certain || hearsOthers(l.pod.view, &h)
			}
		}
	}
	if !certain {
		return nil, netip.Addr{}
	}
	return silent, address
}

// hearsOthers reports whether another host has certainly answered since a host became silent, or none has ever.
func hearsOthers(view *problem.VLAN, silent *problem.Host) bool {
	heard := false
	for _, h := range view.Hosts {
		if h.Address == silent.Address || h.LastAnswer.IsZero() {
			continue
		}
		heard = true
		required := minSilentARP
		switch {
		case !h.Refuses:
		case silent.Refuses:
			required = minHeard
		default:
			required = 0
		}
		if h.LastAnswer.Sub(silent.Since) >= required {
			return true
		}
	}
	return !heard
}

// describe returns what is known about a lost host.
func (h *lostHost) describe(pod *vlanPod) string {
	text := h.Address.String()
	if h.LastMAC != "" {
		text += " (MAC address " + h.LastMAC + ")"
	}
	text += " does not answer Pod " + pod.ref.Name
	if !h.LastAnswer.IsZero() {
		text += " since " + h.LastAnswer.UTC().Format(time.RFC3339)
	}
	if h.reachedBy != nil {
		text += ", and answers Pod " + h.reachedBy.ref.Name
	}
	return text
}
