package control

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/problem"
)

// vlanGrace is how long a pod must have been ready, and its view unchanged, to be evaluated. Pods probe each other
// every neighbours.Interval.
const vlanGrace = 3 * neighbours.Interval

// A vlanPod is a pod on the VLAN with its view.
type vlanPod struct {
	ref       model.Ref
	component string
	// settled reports whether the pod has been ready, or unready, for vlanGrace.
	settled bool
	// interfaces are the interfaces that Multus reports; view is the pod's view of the VLAN, nil if unknown.
	interfaces []cni.PodInterface
	view       *problem.VLAN
	// answers are the hosts that answer the broadcast probes of the pod's container holder.
	answers []problem.Answer
}

// vlanFacts are the inputs of vlanProblems.
type vlanFacts struct {
	// object is the Infra or ProxyServer of the pods.
	object model.Ref
	pods   []*vlanPod // sorted by name
	// gateway is the address of the VLAN's gateway, zero for none; apps are the addresses of apps, and own the
	// addresses of oooi's components, including floating ones.
	gateway   netip.Addr
	apps, own []netip.Addr
}

// vlanProblems returns the problems of a VLAN, by comparing the views of all pods of an Infra or ProxyServer.
func vlanProblems(f *vlanFacts) []problem.Problem {
	var list []problem.Problem
	var working []*vlanPod // those that judge others and are judged by them
	for _, p := range f.pods {
		if p.view == nil || !p.settled {
			continue
		}
		broken := p.interfaceProblems()
		if list = append(list, broken...); len(broken) == 0 {
			working = append(working, p)
		}
	}
	list = append(append(list, f.mtuProblems()...), f.addressProblems()...)
	cut := f.reachProblems(working)
	if list = append(list, cut...); len(cut) == 0 {
		list = append(list, f.uplinkProblems()...)
	}
	return list
}

// interfaceProblems returns the problems of interfaces that are missing, down or without a carrier, or lost an address.
func (p *vlanPod) interfaceProblems() []problem.Problem {
	var list []problem.Problem
	for _, i := range p.interfaces {
		is := p.view.Interface(i.Name)
		switch {
		case is == nil:
			list = append(list, problem.Failed(problem.InterfaceDown, p.ref, "the pod lacks interface %s, so it is not on the VLAN", i.Name))
			continue
		case !is.Up:
			list = append(list, problem.Failed(problem.InterfaceDown, p.ref,
				"interface %s of the pod is down or has no carrier, so the pod cannot be reached on the VLAN", i.Name))
			continue
		}
		for _, a := range i.Addresses {
			if !is.Has(a) {
				list = append(list, problem.Failed(problem.InterfaceAddressMissing, p.ref,
					"interface %s of the pod does not have address %s, although Multus assigned it", i.Name, a).
					WithEvidence(fmt.Sprintf("its addresses: %v", is.Addresses)))
			}
		}
	}
	return list
}

// mtuProblems returns the problems of interfaces with a smaller MTU than others: a veth drops larger packets without an ICMP
// message, so that small packets pass and handshakes with large certificates time out.
func (f *vlanFacts) mtuProblems() []problem.Problem {
	largest := 0
	each := func(found func(p *vlanPod, i *problem.Interface)) {
		for _, p := range f.pods {
			for _, i := range p.interfaces {
				if is := p.view.Interface(i.Name); is != nil && p.settled {
					found(p, is)
				}
			}
		}
	}
	each(func(_ *vlanPod, i *problem.Interface) { largest = max(largest, i.MTU) })
	var list []problem.Problem
	each(func(p *vlanPod, i *problem.Interface) {
		if i.MTU < largest {
			list = append(list, problem.Failed(problem.MTUMismatch, p.ref,
				"interface %s of the pod has MTU %d, and interfaces of other pods on the VLAN have %d: larger packets are dropped, such as large TLS "+
					"certificates", i.Name, i.MTU, largest))
		}
	})
	return list
}

// macs returns the MAC addresses of the pod's interfaces, in lower case.
func (p *vlanPod) macs() []string {
	var macs []string
	for _, i := range p.interfaces {
		macs = append(macs, strings.ToLower(i.MAC))
		if is := p.view.Interface(i.Name); is != nil {
			macs = append(macs, strings.ToLower(is.MAC))
		}
	}
	slices.Sort(macs)
	return slices.DeleteFunc(slices.Compact(macs), func(mac string) bool { return mac == "" })
}

// owner returns the one of the pods to which Multus assigned an address; nil for none.
func owner(pods []*vlanPod, a netip.Addr) *vlanPod {
	for _, p := range pods {
		if slices.ContainsFunc(p.interfaces, func(i cni.PodInterface) bool { return slices.Contains(i.Addresses, a) }) {
			return p
		}
	}
	return nil
}

// addressProblems returns the problems of other hosts that have an address of a pod, of the gateway or of apps, or the MAC
// address of a pod. It returns one for each address, and omits floating addresses, which move.
func (f *vlanFacts) addressProblems() []problem.Problem {
	byMAC := map[string][]*vlanPod{} // several with the CNI plugin ipvlan
	for _, p := range f.pods {
		for _, mac := range p.macs() {
			byMAC[mac] = append(byMAC[mac], p)
		}
	}
	var list []problem.Problem
	found := map[string]bool{}
	add := func(p *problem.Problem, id, requestedBy string) {
		if p != nil && !found[id] {
			found[id] = true
			list = append(list, p.WithEvidence("requested by "+requestedBy))
		}
	}
	for _, p := range f.pods {
		for _, a := range p.answers {
			add(f.foreign(&problem.Host{Address: a.Address, MAC: a.MAC}), a.Address.String(), "container holder of Pod "+p.ref.Name)
		}
		if p.view == nil || !p.settled {
			continue
		}
		for i := range p.view.Hosts {
			h := &p.view.Hosts[i]
			add(f.inTurn(h), h.Address.String(), "Pod "+p.ref.Name)
			if h.MAC != "" && p.view.Age(h.Since) >= vlanGrace {
				add(f.foreign(h), h.Address.String(), "Pod "+p.ref.Name)
				add(f.twin(h, byMAC[h.MAC]), h.MAC, "Pod "+p.ref.Name)
			}
		}
	}
	return list
}

// twin returns the problem of another host with the MAC address of one of the pods that have it; or nil.
func (f *vlanFacts) twin(h *problem.Host, pods []*vlanPod) *problem.Problem {
	if len(pods) != 1 || !pods[0].settled || owner(f.pods, h.Address) != nil || slices.Contains(f.own, h.Address) {
		return nil
	}
	return new(problem.Failed(problem.AddressInUse, pods[0].ref,
		"another host on the VLAN has the MAC address %s of the pod: the switch sends the packets of both to the one that sent last", h.MAC).
		WithEvidence(fmt.Sprintf("it answers for %s, which is not an address of the pod", h.Address)).
		WithRemedy("find the other host: in the switch's MAC address table, this address moves between two ports; assign the other host a " +
			"different MAC address"))
}

// heldTwice returns the problem of each of oooi's addresses that several replicas of a component have. Their containers holder
// do not see it if the pods do not reach each other.
func (f *vlanFacts) heldTwice() []problem.Problem {
	var list []problem.Problem
	for _, a := range f.own {
		evidence := map[string][]string{} // by component
		for _, p := range f.pods {
			if p.view != nil && slices.ContainsFunc(p.view.Interfaces, func(i problem.Interface) bool { return i.Has(a) }) {
				evidence[p.component] = append(evidence[p.component], fmt.Sprintf("Pod %s has the address", p.ref.Name))
			}
		}
		for _, component := range slices.Sorted(maps.Keys(evidence)) {
			if n := len(evidence[component]); n > 1 {
				list = append(list, problem.Failed(problem.AddressHeldTwice, f.object, "%d pods have the floating address %s", n, a).
					WithEvidence(evidence[component]...).
					WithRemedy("check that the pods reach each other on the VLAN, and the API server; see the logs of containers holder"))
			}
		}
	}
	return list
}

// inTurn returns the problem of two hosts that answer in turn; or nil.
func (f *vlanFacts) inTurn(h *problem.Host) *problem.Problem {
	var p problem.Problem
	pod := owner(f.pods, h.Address)
	switch {
	case h.Other == "":
		return nil
	case pod != nil && pod.settled:
		p = problem.Failed(problem.AddressInUse, pod.ref, "two hosts on the VLAN answer in turn for address %s of the pod", h.Address)
	case h.Address == f.gateway:
		p = problem.Warned(problem.AddressInUse, f.object, "two hosts on the VLAN answer in turn for the gateway's address %s", h.Address)
	case slices.Contains(f.apps, h.Address):
		p = problem.Failed(problem.AddressInUse, f.object, "two hosts on the VLAN answer in turn for apps address %s", h.Address).
			WithRemedy("remove the address from the host that does not serve apps; if both are nodes of the hosted cluster, see the logs of MetalLB's speakers")
	default:
		return nil
	}
	return new(p.WithEvidence(fmt.Sprintf("MAC addresses %s and %s", cmp.Or(h.MAC, h.LastMAC), h.Other)))
}

// foreign returns the problem of a host that answers for a pod's address, or of a VM that answers for the gateway's;
// or nil.
func (f *vlanFacts) foreign(h *problem.Host) *problem.Problem {
	host := "another host on the VLAN, with MAC address " + h.MAC
	if h.VM != "" {
		host = fmt.Sprintf("VM interface %s, with MAC address %s", h.VM, h.MAC)
	}
	pod := owner(f.pods, h.Address)
	switch {
	case h.Address == f.gateway && h.VM != "":
		return new(problem.Failed(problem.AddressInUse, f.object, "%s, answers ARP requests for the gateway's address %s", host, h.Address))
	case pod == nil || !pod.settled || len(pod.macs()) == 0 || slices.Contains(pod.macs(), h.MAC):
		return nil
	}
	return new(problem.Failed(problem.AddressInUse, pod.ref, "%s, answers ARP requests for address %s of the pod", host, h.Address).
		WithEvidence("the pod has MAC address " + strings.Join(pod.macs(), ", ")))
}

const (
	// maxUplinkSpread is how far apart hosts become silent at most when the uplink fails: the kernel keeps the MAC addresses of
	// some for 75 seconds.
	maxUplinkSpread = 2 * time.Minute
	// minSilentVM is how long the only known host must be silent: a VM reboots in that time.
	minSilentVM = 2 * time.Minute
)

// runningVMs returns when the running VMs were created, by MAC address. known is false without the view of a DHCP
// server, which knows the VMs.
func (f *vlanFacts) runningVMs() (created map[string]time.Time, known bool) {
	created = map[string]time.Time{}
	for _, p := range f.pods {
		if p.view == nil {
			continue
		}
		known = known || p.component == v1alpha1.ComponentDHCP
		for _, h := range p.view.Hosts {
			if !h.Running.IsZero() {
				created[h.LastMAC] = h.Running
			}
		}
	}
	return created, known
}

// uplinkProblems returns the problem of a VLAN on which pods answer each other and no other host does: several that
// stopped at the same time, or a single running VM. A host that never answered proves nothing, and neither does a VM that does
// not run, or was restarted.
func (f *vlanFacts) uplinkProblems() []problem.Problem {
	running, known := f.runningVMs()
	peers := false
	silent := map[string]time.Duration{} // time since the last answer, by MAC address
	var evidence []string
	for _, p := range f.pods {
		if p.view == nil {
			continue
		}
		for _, h := range p.view.Hosts {
			created, runs := running[h.LastMAC]
			switch {
			case owner(f.pods, h.Address) != nil:
				peers = peers || h.MAC != ""
			case slices.Contains(f.own, h.Address):
			case h.MAC != "":
				return nil
			case known && h.Address != f.gateway && (!runs || created.After(h.LastAnswer)):
			case h.LastMAC != "" && p.settled && p.view.Age(h.Since) >= vlanGrace:
				age := p.view.Age(h.LastAnswer)
				if last, found := silent[h.LastMAC]; !found || age < last {
					silent[h.LastMAC] = age
				}
				evidence = append(evidence, fmt.Sprintf("%s no longer answers Pod %s: last answer at %s, from MAC address %s", h.Address,
					p.ref.Name, h.LastAnswer.UTC().Format(time.RFC3339), h.LastMAC))
			}
		}
	}
	latest, together, vm := time.Duration(1<<63-1), 0, false
	for _, age := range silent {
		latest = min(latest, age)
	}
	for mac, age := range silent {
		if age-latest <= maxUplinkSpread {
			together++
			_, vm = running[mac]
		}
	}
	if !peers || together == 0 || together == 1 && (!vm || latest < minSilentVM) {
		return nil
	}
	hosts := fmt.Sprintf("none of the %d hosts that answered before still answers", together)
	if together == 1 {
		hosts = "the only VM that answered before does not answer"
	}
	return []problem.Problem{problem.Failed(problem.NoOtherHostAnswers, f.object,
		"%s on the VLAN, only oooi's pods do: the VLAN is cut between their nodes and the VMs, or all VMs hang", hosts).
		WithEvidence(evidence...).
		WithRemedy("check that the switch ports of the pods' nodes carry the VLAN, and that the interface that connects the VLAN's bridge to the switch is up")}
}
