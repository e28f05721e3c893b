package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
)

// Addresses on the VLAN of the tests. Pods have MAC address 02:00:00:00:00:NN, and other hosts 02:00:00:00:01:NN.
const (
	dhcpAddress, dnsAddress, proxyAddress = "192.0.2.2", "192.0.2.3", "192.0.2.4"

	gateway, apps, vm1, vm2, floating = "192.0.2.1", "192.0.2.200", "192.0.2.101", "192.0.2.102", "192.0.2.9"
)

var viewed = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func macOf(address string) string {
	a := netip.MustParseAddr(address).As4()
	if slices.Contains([]string{dhcpAddress, dnsAddress, proxyAddress}, address) {
		return fmt.Sprintf("02:00:00:00:00:%02x", a[3])
	}
	return fmt.Sprintf("02:00:00:00:01:%02x", a[3])
}

// answers are hosts that answer a pod for an hour, and refuse datagrams.
func answers(addresses ...string) []problem.Host {
	var list []problem.Host
	for _, a := range addresses {
		list = append(list, problem.Host{
			Address: netip.MustParseAddr(a), MAC: macOf(a), Since: viewed.Add(-time.Hour), LastMAC: macOf(a), LastAnswer: viewed.Add(-5 * time.Second), Refuses: true,
		})
	}
	return list
}

// stopped are hosts that refuse datagrams, and stopped some time ago.
func stopped(ago time.Duration, addresses ...string) []problem.Host {
	list := answers(addresses...)
	for i := range list {
		list[i].MAC, list[i].Since, list[i].LastAnswer = "", viewed.Add(-ago), viewed.Add(-ago)
	}
	return list
}

// never are hosts that never answered, and are probed for an hour.
func never(addresses ...string) []problem.Host {
	list := stopped(time.Hour, addresses...)
	for i := range list {
		list[i].LastMAC, list[i].LastAnswer, list[i].Refuses = "", time.Time{}, false
	}
	return list
}

// running are VMs that run, and were created some time ago.
func running(ago time.Duration, hosts []problem.Host) []problem.Host {
	for i := range hosts {
		hosts[i].Running = viewed.Add(-ago)
	}
	return hosts
}

// sameMAC gives hosts that stopped the MAC address of another host.
func sameMAC(hosts []problem.Host, address string) []problem.Host {
	for i := range hosts {
		hosts[i].LastMAC = macOf(address)
	}
	return hosts
}

func byARP(hosts []problem.Host) []problem.Host {
	for i := range hosts {
		hosts[i].Refuses = false
	}
	return hosts
}

// settledPod returns a pod on the VLAN with its view.
func settledPod(name, address string, hosts ...[]problem.Host) *vlanPod {
	a := netip.MustParseAddr(address)
	return &vlanPod{
		ref: model.Ref{Kind: "Pod", Namespace: "clusters", Name: name}, settled: true,
		interfaces: []cni.PodInterface{{Name: "net1", MAC: strings.ToUpper(macOf(address)), Addresses: []netip.Addr{a}}},
		view: &problem.VLAN{
			At:         viewed,
			Interfaces: []problem.Interface{{Name: "net1", MAC: macOf(address), Up: true, MTU: 1500, Addresses: []netip.Prefix{netip.PrefixFrom(a, 24)}}},
			Hosts:      slices.Concat(hosts...),
		},
	}
}

func changed(p *vlanPod, change func(*vlanPod)) *vlanPod {
	change(p)
	return p
}

// broadcasts adds a host that answers the broadcast probes of a pod.
func broadcasts(p *vlanPod, a, mac string) *vlanPod {
	return changed(p, func(p *vlanPod) {
		p.answers = append(p.answers, problem.Answer{Address: netip.MustParseAddr(a), MAC: mac})
	})
}

func host(a, mac, other string, since time.Duration) []problem.Host {
	h := answers(a)
	h[0].MAC, h[0].LastMAC, h[0].Other, h[0].Since = mac, mac, other, viewed.Add(-since)
	return h
}

func TestVLANProblems(t *testing.T) {
	const foreignMAC = "02:00:00:00:ff:01"
	dhcp := func(hosts ...[]problem.Host) *vlanPod { return settledPod("dhcp", dhcpAddress, hosts...) }
	dns := func(hosts ...[]problem.Host) *vlanPod { return settledPod("dns", dnsAddress, hosts...) }
	proxy := func(hosts ...[]problem.Host) *vlanPod { return settledPod("proxy", proxyAddress, hosts...) }
	server := func(hosts ...[]problem.Host) *vlanPod { // a DHCP server that knows the VMs
		return changed(dhcp(hosts...), func(p *vlanPod) { p.component = v1alpha1.ComponentDHCP })
	}
	young := func(p *vlanPod) *vlanPod { return changed(p, func(p *vlanPod) { p.settled = false }) }
	isolatedText := "fail PodUnreachable Pod clusters/dns: 2 hosts on the VLAN answer other pods, and not this pod: packets between them and the pod are dropped"
	pairText := "fail PodUnreachable Infra clusters/demo: Pod dns does not reach Pod proxy on the VLAN, although other pods do"
	appsText := "fail BackendUnreachable Infra clusters/demo: apps address 192.0.2.200 does not answer all ARP requests on the VLAN: VMs that do not know its MAC address cannot reach apps"
	cutText := "fail PodUnreachable Pod clusters/proxy: no host on the VLAN answers the pod, although its interface is up: its port is not attached to the bridge, or is on another VLAN, or a filter drops its packets"
	silentText := "fail PodUnreachable Pod clusters/%s: address %s of the pod does not answer ARP requests on the VLAN, although its interface is up: the pod is on another VLAN or bridge, or a filter drops its packets"
	foreignText := "fail AddressInUse Pod clusters/dns: another host on the VLAN, with MAC address 02:00:00:00:ff:01, answers ARP requests for address 192.0.2.3 of the pod"
	uplinkText := "fail NoOtherHostAnswers Infra clusters/demo: none of the 2 hosts that answered before answers on the VLAN, only oooi's pods do: the VLAN is cut between their nodes and the VMs, or all VMs hang"
	onlyVMText := strings.Replace(uplinkText, "none of the 2 hosts that answered before answers", "the only VM that answered before does not answer", 1)
	for _, tc := range []struct {
		name string
		pods []*vlanPod
		want []string
	}{
		// Without a problem.
		{"no pod", nil, nil},
		{"two pods, and a gateway that never answered", []*vlanPod{dhcp(answers(dnsAddress), never(gateway)), dns(answers(dhcpAddress), never(gateway))}, nil},
		{"three pods, gateway, apps and VMs", []*vlanPod{
			dhcp(answers(dnsAddress, proxyAddress, gateway, vm1, vm2)), dns(answers(dhcpAddress, proxyAddress, gateway, apps)), proxy(answers(dhcpAddress, dnsAddress, gateway, apps, floating)),
		}, nil},
		{"just started", []*vlanPod{young(dhcp()), young(dns()), young(proxy())}, nil},
		{"a pod was replaced", []*vlanPod{dhcp(host(dnsAddress, foreignMAC, "", time.Hour), answers(proxyAddress)), young(dns(never(dhcpAddress, proxyAddress, gateway))), proxy(stopped(time.Minute, dnsAddress), answers(dhcpAddress))}, nil},
		{"a view is not known", []*vlanPod{dhcp(answers(proxyAddress), stopped(time.Minute, dnsAddress)), changed(dns(), func(p *vlanPod) { p.view = nil }), proxy(answers(dhcpAddress), stopped(time.Minute, dnsAddress))}, nil},
		{"Multus did not report", []*vlanPod{changed(dhcp(answers(dnsAddress)), func(p *vlanPod) { p.interfaces = nil })}, nil},
		{"a host just changed", []*vlanPod{dhcp(host(dnsAddress, foreignMAC, "", 30*time.Second)), dns(answers(dhcpAddress))}, nil},
		{"hosts just stopped", []*vlanPod{dhcp(stopped(30*time.Second, dnsAddress, gateway, vm1)), dns(stopped(30*time.Second, dhcpAddress, gateway))}, nil},
		{"VMs were stopped one after the other", []*vlanPod{dhcp(answers(dnsAddress), stopped(time.Hour, vm1), stopped(time.Minute, vm2)), dns(answers(dhcpAddress))}, nil},
		{"VMs were stopped, and the gateway answers another pod", []*vlanPod{dhcp(answers(dnsAddress), stopped(time.Minute, vm1, vm2)), dns(answers(dhcpAddress, gateway))}, nil},
		{"a VM was stopped, and the kernel of another pod keeps its MAC address", []*vlanPod{dhcp(answers(dnsAddress), stopped(80*time.Second, vm1)), dns(byARP(answers(dhcpAddress, vm1)))}, nil},
		{"the floating address moved", []*vlanPod{dhcp(answers(proxyAddress, gateway), stopped(time.Minute, floating)), proxy(answers(dhcpAddress, gateway)), dns(answers(dhcpAddress, gateway, floating))}, nil},
		{"an address of a pod that was deleted", []*vlanPod{dhcp(answers(gateway), never(dnsAddress, proxyAddress))}, nil},
		{"pods with the same MAC address, by ipvlan", []*vlanPod{
			dhcp(host(dnsAddress, macOf(dhcpAddress), "", time.Hour), host(floating, macOf(dhcpAddress), "", time.Hour)),
			changed(dns(answers(dhcpAddress)), func(p *vlanPod) {
				p.interfaces[0].MAC, p.view.Interfaces[0].MAC = macOf(dhcpAddress), macOf(dhcpAddress)
			}),
		}, nil},

		// Interfaces.
		{"interface down", []*vlanPod{changed(dhcp(stopped(time.Minute, dnsAddress)), func(p *vlanPod) { p.view.Interfaces[0].Up = false }), dns(stopped(time.Minute, dhcpAddress), answers(gateway))},
			[]string{"fail InterfaceDown Pod clusters/dhcp: interface net1 of the pod is down or has no carrier: the pod cannot be reached on the VLAN"}},
		{"interface missing", []*vlanPod{changed(dhcp(), func(p *vlanPod) { p.view.Interfaces = nil })}, []string{"fail InterfaceDown Pod clusters/dhcp: the pod has no interface net1: it is not on the VLAN"}},
		{"interface down, just started", []*vlanPod{young(changed(dhcp(), func(p *vlanPod) { p.view.Interfaces = nil }))}, nil},
		{"address lost", []*vlanPod{changed(dhcp(), func(p *vlanPod) { p.view.Interfaces[0].Addresses = nil }), dns(stopped(time.Minute, dhcpAddress), answers(gateway))},
			[]string{"fail InterfaceAddressMissing Pod clusters/dhcp: interface net1 of the pod does not have address 192.0.2.2, although Multus assigned it"}},
		{"MTU differs", []*vlanPod{changed(dhcp(answers(dnsAddress)), func(p *vlanPod) { p.view.Interfaces[0].MTU = 1400 }), dns(answers(dhcpAddress))},
			[]string{"fail MTUMismatch Pod clusters/dhcp: interface net1 of the pod has MTU 1400, and interfaces of other pods on the VLAN have 1500: larger packets are dropped, such as large TLS certificates"}},

		// Addresses.
		{"foreign MAC address", []*vlanPod{dhcp(host(dnsAddress, foreignMAC, "", time.Minute)), dns(answers(dhcpAddress)), proxy(host(dnsAddress, foreignMAC, "", time.Minute), answers(dhcpAddress))},
			[]string{foreignText}},
		{"foreign MAC address answers broadcasts only", []*vlanPod{dhcp(answers(dnsAddress)), dns(answers(dhcpAddress)), broadcasts(proxy(answers(dnsAddress)), dnsAddress, foreignMAC)}, []string{foreignText}},
		{"foreign MAC address answers broadcasts of two replicas", []*vlanPod{broadcasts(dhcp(), dnsAddress, foreignMAC), dns(answers(dhcpAddress)), broadcasts(proxy(), dnsAddress, foreignMAC)}, []string{foreignText}},
		{"foreign MAC address answers broadcasts for the prober's address", []*vlanPod{dhcp(), broadcasts(dns(answers(dhcpAddress)), dnsAddress, foreignMAC)}, []string{foreignText}},
		{"only the pods answer broadcasts", []*vlanPod{dhcp(answers(dnsAddress)), dns(answers(dhcpAddress)), broadcasts(broadcasts(proxy(), dnsAddress, macOf(dnsAddress)), dhcpAddress, macOf(dhcpAddress))}, nil},
		{"a replaced pod still answers broadcasts", []*vlanPod{dhcp(answers(dnsAddress)), young(dns(answers(dhcpAddress))), broadcasts(proxy(), dnsAddress, foreignMAC)}, nil},
		{"a deleted pod still answers broadcasts", []*vlanPod{dhcp(), broadcasts(proxy(), dnsAddress, foreignMAC)}, nil},
		{"two gateways answer broadcasts", []*vlanPod{dhcp(), broadcasts(broadcasts(proxy(), gateway, macOf(gateway)), gateway, foreignMAC)}, nil},
		{"the floating address is at two replicas", []*vlanPod{dhcp(), broadcasts(broadcasts(proxy(), floating, macOf(dnsAddress)), floating, foreignMAC)}, nil},
		{"two hosts in turn", []*vlanPod{dhcp(host(dnsAddress, macOf(dnsAddress), foreignMAC, time.Second)), dns(answers(dhcpAddress))},
			[]string{"fail AddressInUse Pod clusters/dns: two hosts on the VLAN answer in turn for address 192.0.2.3 of the pod"}},
		{"two gateways in turn", []*vlanPod{dhcp(host(gateway, macOf(gateway), foreignMAC, time.Second))}, []string{"warn AddressInUse Infra clusters/demo: two hosts on the VLAN answer in turn for the gateway's address 192.0.2.1"}},
		{"two hosts in turn for apps", []*vlanPod{dhcp(host(apps, macOf(apps), foreignMAC, time.Second))}, []string{"fail AddressInUse Infra clusters/demo: two hosts on the VLAN answer in turn for apps address 192.0.2.200"}},
		{"floating address in turn", []*vlanPod{dhcp(host(floating, macOf(dnsAddress), macOf(proxyAddress), time.Second)), dns(answers(dhcpAddress)), proxy(answers(dhcpAddress))}, nil},
		{"the gateway is a VM", []*vlanPod{changed(dhcp(answers(gateway)), func(p *vlanPod) { p.view.Hosts[0].VM = "vms/node-1/net" })},
			[]string{"fail AddressInUse Infra clusters/demo: VM interface vms/node-1/net, with MAC address 02:00:00:00:01:01, answers ARP requests for the gateway's address 192.0.2.1"}},
		{"a host has the MAC address of a pod", []*vlanPod{dhcp(answers(dnsAddress), host(vm1, macOf(dnsAddress), "", time.Minute)), dns(answers(dhcpAddress))},
			[]string{"fail AddressInUse Pod clusters/dns: another host on the VLAN has the MAC address 02:00:00:00:00:03 of the pod: the switch sends the packets of both to the one that sent last"}},

		// Paths.
		{"one of three pods is cut off", []*vlanPod{
			dhcp(answers(dnsAddress, vm1), stopped(time.Minute, proxyAddress)), dns(answers(dhcpAddress, gateway), stopped(time.Minute, proxyAddress)), proxy(stopped(time.Minute, dhcpAddress, dnsAddress, gateway)),
		}, []string{cutText}},
		{"one of two pods is cut off", []*vlanPod{dhcp(answers(gateway), stopped(time.Minute, proxyAddress)), proxy(stopped(time.Minute, dhcpAddress, gateway))}, []string{cutText}},
		{"all pods are cut off", []*vlanPod{dhcp(stopped(time.Minute, proxyAddress, vm1)), proxy(stopped(time.Minute, dhcpAddress, gateway))}, []string{
			strings.Replace(cutText, "proxy", "dhcp", 1), cutText,
		}},
		{"a pod answers no other one, and sends nothing", []*vlanPod{dhcp(answers(dnsAddress, gateway), stopped(time.Minute, proxyAddress)), dns(answers(dhcpAddress, gateway), stopped(time.Minute, proxyAddress)), proxy()},
			[]string{fmt.Sprintf(silentText, "proxy", proxyAddress)}},
		{"two pods that only know each other", []*vlanPod{dhcp(never(dnsAddress)), dns(never(dhcpAddress))}, []string{"fail PodUnreachable Infra clusters/demo: Pods dhcp and dns do not reach each other on the VLAN"}},
		{"a pod does not reach a VM that others reach", []*vlanPod{dhcp(answers(dnsAddress, vm1)), dns(answers(dhcpAddress), stopped(time.Minute, vm1))}, nil},
		{"a pod does not reach two VMs that others reach", []*vlanPod{
			dhcp(answers(dnsAddress, proxyAddress, vm1, vm2)), dns(answers(dhcpAddress, proxyAddress), stopped(time.Minute, vm1, vm2)), proxy(answers(dhcpAddress, dnsAddress)),
		}, []string{isolatedText}},
		{"a pod does not reach apps, at a VM that others reach", []*vlanPod{
			dhcp(answers(dnsAddress), host(vm1, macOf(apps), "", time.Hour)), dns(answers(dhcpAddress), stopped(time.Minute, apps), sameMAC(stopped(time.Minute, vm1), apps)), proxy(answers(dhcpAddress, apps)),
		}, []string{appsText}},
		{"a pod does not reach apps that others reach", []*vlanPod{dhcp(answers(dnsAddress)), dns(answers(dhcpAddress), stopped(time.Minute, apps)), proxy(answers(dhcpAddress, dnsAddress, apps))}, []string{appsText}},
		{"two pods do not reach apps that others reach", []*vlanPod{dhcp(answers(dnsAddress), stopped(time.Minute, apps)), dns(answers(dhcpAddress), stopped(time.Minute, apps)), proxy(answers(dhcpAddress, dnsAddress, apps))}, []string{appsText}},
		{"a pod has just lost apps", []*vlanPod{dhcp(answers(dnsAddress)), dns(answers(dhcpAddress), stopped(30*time.Second, apps)), proxy(answers(dhcpAddress, dnsAddress, apps))}, nil},
		{"a pod does not reach a pod that others reach", []*vlanPod{
			dhcp(answers(dnsAddress, proxyAddress, gateway)), dns(answers(dhcpAddress, gateway), stopped(time.Minute, proxyAddress)), proxy(answers(dhcpAddress, dnsAddress, gateway)),
		}, []string{pairText}},
		{"a pod does not reach most hosts", []*vlanPod{
			dhcp(answers(dnsAddress, proxyAddress, gateway, vm1)), dns(answers(dhcpAddress), stopped(time.Minute, proxyAddress, gateway, vm1)), proxy(answers(dhcpAddress, gateway), stopped(time.Minute, dnsAddress)),
		}, []string{strings.Replace(isolatedText, "2 hosts", "3 hosts", 1)}},
		{"only our pods answer", []*vlanPod{dhcp(answers(proxyAddress), stopped(2*time.Minute, vm1)), proxy(answers(dhcpAddress), stopped(time.Minute, gateway))}, []string{uplinkText}},
		{"a VM hangs or is cut off, and the gateway never answered", []*vlanPod{server(answers(proxyAddress), running(time.Hour, stopped(2*time.Minute, vm1))), proxy(answers(dhcpAddress), never(gateway))}, []string{onlyVMText}},
		{"a VM hangs or is cut off, and the gateway answers", []*vlanPod{server(answers(proxyAddress), running(time.Hour, stopped(2*time.Minute, vm1))), proxy(answers(dhcpAddress, gateway))}, nil},
		{"the only VM reboots", []*vlanPod{server(answers(proxyAddress), running(time.Hour, stopped(100*time.Second, vm1))), proxy(answers(dhcpAddress))}, nil},
		{"the only VM is new, and has the address of the previous one", []*vlanPod{server(answers(proxyAddress), running(time.Minute, stopped(3*time.Minute, vm1))), proxy(answers(dhcpAddress))}, nil},
		{"VMs were stopped together", []*vlanPod{server(answers(proxyAddress), stopped(3*time.Minute, vm1, vm2)), proxy(answers(dhcpAddress), never(gateway))}, nil},
		{"VMs were stopped together, and one runs", []*vlanPod{server(answers(proxyAddress), stopped(3*time.Minute, vm1), running(time.Hour, answers(vm2))), proxy(answers(dhcpAddress))}, nil},
		{"two VMs that run are cut off", []*vlanPod{server(answers(proxyAddress), running(time.Hour, stopped(time.Minute, vm1, vm2))), proxy(answers(dhcpAddress))}, []string{uplinkText}},
		{"a VM and the gateway are cut off", []*vlanPod{server(answers(proxyAddress), running(time.Hour, stopped(time.Minute, vm1))), proxy(answers(dhcpAddress), stopped(time.Minute, gateway, vm1))}, []string{uplinkText}},
		{"a stopped VM and the gateway are silent", []*vlanPod{server(answers(proxyAddress), stopped(time.Minute, vm1)), proxy(answers(dhcpAddress), stopped(time.Minute, gateway))}, nil},
		{"only our pods answer, and one other host was known", []*vlanPod{dhcp(answers(proxyAddress), stopped(time.Minute, gateway)), proxy(answers(dhcpAddress), stopped(time.Minute, gateway))}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &vlanFacts{object: model.Ref{Kind: "Infra", Namespace: "clusters", Name: "demo"}, pods: tc.pods, gateway: netip.MustParseAddr(gateway), apps: []netip.Addr{netip.MustParseAddr(apps)}}
			for _, a := range []string{dhcpAddress, dnsAddress, proxyAddress, floating} {
				f.own = append(f.own, netip.MustParseAddr(a))
			}
			var got []string
			for _, p := range vlanProblems(f) {
				got = append(got, fmt.Sprintf("%s %s %s: %s", p.Severity, p.Code, p.Object, p.Message))
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
