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
)

// A lostHost is a host that does not answer a pod, although it is a pod or answers another pod.
type lostHost struct {
	problem.Host

	// pod is the pod that the host does not answer.
	pod *vlanPod
	// owner is the pod with the address; nil for another host. reachedBy is a pod that the host has answered for long
	// enough since it became silent; nil without one.
	owner, reachedBy *vlanPod
}

// key identifies the host: one with several addresses is one host.
func (l *lostHost) key() string {
	if l.owner != nil {
		return l.owner.ref.Name
	}
	return cmp.Or(l.LastMAC, l.Address.String())
}

// reachProblems returns the problems of pods that do not reach others or are not reached. The pod with the most hosts that do not
// answer it or that it does not answer is the cause; then, without it, the next one.
func (f *vlanFacts) reachProblems(working []*vlanPod) []problem.Problem {
	var list []problem.Problem
	var lost []lostHost
	for _, p := range working {
		silent, answering, gone := f.silentHosts(working, p)
		lost = append(lost, silent...)
		if answering == 0 && len(silent)+gone > 1 && slices.ContainsFunc(silent, func(l lostHost) bool { return l.owner != nil }) {
			list = append(list, withHosts(problem.Failed(problem.PodUnreachable, p.ref, "no host on the VLAN answers the pod, although its interface is up: "+
				"its port is not attached to the bridge, or is on another VLAN, or a filter drops its packets"), silent))
		}
	}
	isolated := func(p *vlanPod) bool {
		return slices.ContainsFunc(list, func(reported problem.Problem) bool { return reported.Object == p.ref })
	}
	for {
		lost = slices.DeleteFunc(lost, func(l lostHost) bool { return isolated(l.pod) || l.owner != nil && isolated(l.owner) })
		worst, most := (*vlanPod)(nil), 1
		for _, p := range working {
			if n := countHosts(lost, p); n > most {
				worst, most = p, n
			}
		}
		if worst == nil {
			break
		}
		list = append(list, isolatedPod(worst, lost))
	}
	for i := range lost {
		p := f.singleHostProblem(&lost[i], lost)
		if p == nil {
			continue
		}
		if at := slices.IndexFunc(list, func(other problem.Problem) bool { return other.Message == p.Message }); at >= 0 {
			list[at] = list[at].WithEvidence(p.Evidence...) // of another pod
		} else {
			list = append(list, *p)
		}
	}
	return list
}

// countHosts returns the number of different hosts that do not answer a pod, or that the pod does not answer.
func countHosts(lost []lostHost, p *vlanPod) int {
	hosts := map[string]bool{}
	for i := range lost {
		switch l := &lost[i]; p {
		case l.pod:
			hosts[l.key()] = true
		case l.owner:
			hosts[l.pod.ref.Name] = true
		}
	}
	return len(hosts)
}

// isolatedPod returns the problem of a pod that several hosts do not answer, or that does not answer several pods.
func isolatedPod(p *vlanPod, lost []lostHost) problem.Problem {
	outgoing := slices.DeleteFunc(slices.Clone(lost), func(l lostHost) bool { return l.pod != p })
	if n := countHosts(outgoing, p); n > 1 {
		return withHosts(problem.Failed(problem.PodUnreachable, p.ref, "%d hosts on the VLAN answer other pods, and not this pod: packets between them "+
			"and the pod are dropped", n).WithRemedy("compare the ports of the pods on the node's bridge and on the switch: VLAN, port isolation, private "+
			"VLANs, ACLs, and filters of family bridge or netdev ('nft list ruleset')"), outgoing)
	}
	incoming := slices.DeleteFunc(slices.Clone(lost), func(l lostHost) bool { return l.owner != p })
	return withHosts(problem.Failed(problem.PodUnreachable, p.ref, "address %s of the pod does not answer ARP requests on the VLAN, although its "+
		"interface is up: the pod is on another VLAN or bridge, or a filter drops its packets", incoming[0].Address), incoming)
}

// withHosts adds the first of lost hosts as evidence.
func withHosts(p problem.Problem, lost []lostHost) problem.Problem {
	const most = 4
	for i := range lost[:min(len(lost), most)] {
		p = p.WithEvidence(lost[i].describe())
	}
	return p
}

// singleHostProblem returns the problem of a single host that does not answer a pod. The fault may be at either end: the problem is
// one of the site. It returns nil for a host that concerns only itself, because it is neither a pod nor has an apps address.
func (f *vlanFacts) singleHostProblem(l *lostHost, lost []lostHost) *problem.Problem {
	mutual := slices.ContainsFunc(lost, func(other lostHost) bool { return l.owner != nil && other.pod == l.owner && other.owner == l.pod })
	var p problem.Problem
	switch {
	case mutual && l.pod.ref.Name > l.owner.ref.Name:
		return nil // the same as the other pod's
	case mutual:
		p = problem.Failed(problem.PodUnreachable, f.object, "Pods %s and %s do not reach each other on the VLAN", l.pod.ref.Name, l.owner.ref.Name)
	case l.reachedBy == nil:
		return nil // too early
	case l.owner != nil:
		p = problem.Failed(problem.PodUnreachable, f.object, "Pod %s does not reach Pod %s on the VLAN, although other pods do", l.pod.ref.Name, l.owner.ref.Name)
	case slices.Contains(f.apps, l.Address):
		p = problem.Failed(problem.BackendUnreachable, f.object,
			"apps address %s does not answer all ARP requests on the VLAN: VMs that do not know its MAC address cannot reach apps", l.Address).
			WithRemedy("check the load balancer of the hosted cluster, such as MetalLB's speakers and its L2Advertisement, and filters of ARP on the nodes' " +
				"VMs and in the switch")
	default:
		return nil
	}
	if l.owner != nil {
		p = p.WithRemedy("compare port isolation, private VLANs and filters of both pods' ports on their bridges, and of their nodes' ports on the switch")
	}
	return new(p.WithEvidence(l.describe()))
}

// silentHosts returns the lost hosts of a working pod, and the numbers of hosts that answer it, and of others that once answered. It
// omits addresses of pods that do not work or are unknown, floating addresses, and hosts that stopped answering less than vlanGrace
// ago.
func (f *vlanFacts) silentHosts(working []*vlanPod, p *vlanPod) (lost []lostHost, answering, gone int) {
	for _, h := range p.view.Hosts {
		pod, silent := owner(working, h.Address), p.view.Age(h.Since)
		switch {
		case pod == p || pod == nil && (slices.Contains(f.own, h.Address) || owner(f.pods, h.Address) != nil):
			continue
		case h.MAC != "":
			answering++
			continue
		case silent < vlanGrace:
			continue
		}
		l := lostHost{Host: h, pod: p, owner: pod}
		if at := slices.IndexFunc(working, func(other *vlanPod) bool { return other != p && other.reaches(h.Address, silent) }); at >= 0 {
			l.reachedBy = working[at]
		}
		switch {
		case l.owner != nil || l.reachedBy != nil:
			lost = append(lost, l)
		case h.LastMAC != "":
			gone++
		}
	}
	return lost, answering, gone
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
	}
	return min(silent, p.view.Age(h.Since))-p.view.Age(h.LastAnswer) >= required
}

// describe describes a lost host.
func (l *lostHost) describe() string {
	text := l.Address.String()
	if l.LastMAC != "" {
		text += " (MAC address " + l.LastMAC + ")"
	}
	text += " does not answer Pod " + l.pod.ref.Name
	if !l.LastAnswer.IsZero() {
		text += " since " + l.LastAnswer.UTC().Format(time.RFC3339)
	}
	if l.reachedBy != nil {
		text += ", and answers Pod " + l.reachedBy.ref.Name
	}
	return text
}
