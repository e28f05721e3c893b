package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/coredhcpbuild/internal/dhcp4"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
)

const (
	// minStoreFailure is how long operations of the lease store must have failed for a client: it repeats its request after 4
	// and 12 seconds.
	minStoreFailure = 10 * time.Second
	// maxRetryInterval is the time within which a client without an address repeats its request. After this time without an
	// operation, it is not known whether another one would fail.
	maxRetryInterval = 10 * time.Minute
	// nearlyFullPercent is the share of taken addresses, in percent, from which ranges are reported.
	nearlyFullPercent = 90
	// minProxied is the number of addresses answered by one MAC address from which its host is reported as doing
	// proxy ARP.
	minProxied = 4
	// takenGrace is how long another host must have answered for a leased address. The kernel may cache the previous
	// client's MAC address for 75 seconds.
	takenGrace = 90 * time.Second
	// minUnrenewed is the minimum time without a renewal before a VM is reported. It exceeds a rollout of DHCP.
	minUnrenewed = 10 * time.Minute
)

// storeProblems returns the problems of lease stores whose operations fail.
func (f *facts) storeProblems() []problem.Problem {
	var list []problem.Problem
	for i := range f.Leasedb {
		l := &f.Leasedb[i]
		for _, operation := range slices.Sorted(maps.Keys(l.Operations)) {
			o := l.Operations[operation]
			if o.Failing == 0 || o.Failed.Sub(o.Since) < minStoreFailure || f.now.Sub(o.Failed) > maxRetryInterval {
				continue
			}
			p := problem.Failed(problem.LeaseStoreFailing, model.Ref{},
				"lease store operations of type %s fail: clients without an address may get none", operation).
				WithEvidence(formatTime(o.Failed) + ": " + o.Error)
			if !o.Succeeded.IsZero() {
				p = p.WithEvidence("the last success, of any client, was at " + formatTime(o.Succeeded))
			}
			p.Since = o.Since
			list = append(list, p)
		}
	}
	return list
}

// rangeProblems returns the problems of ranges that are full or nearly full.
func (f *facts) rangeProblems() []problem.Problem {
	var list []problem.Problem
	for i := range f.Leasedb {
		a := &f.Leasedb[i].Addresses
		taken := a.Size - a.Free
		switch {
		case !a.Loaded || taken*100 < a.Size*nearlyFullPercent:
		case a.Free == 0:
			list = append(list, problem.Failed(problem.RangesFull, f.infra(),
				"all %d addresses of the DHCP ranges are leased or in use: new VMs get no address", a.Size))
		default:
			list = append(list, problem.Warned(problem.RangesFull, f.infra(), "%d of %d addresses of the DHCP ranges are leased or in use", taken, a.Size))
		}
	}
	return list
}

// usedAddresses returns the problems of addresses in quarantine, by the MAC address that answers for them.
func (f *facts) usedAddresses() []problem.Problem {
	var list []problem.Problem
	for i := range f.Leasedb {
		used := map[string][]leasedb.Quarantine{} // by MAC address
		for _, q := range f.Leasedb[i].Quarantined {
			used[q.MAC] = append(used[q.MAC], q)
		}
		for _, q := range used[""] {
			list = append(list, problem.Warned(problem.LeasedAddressInUse, f.leaseRef(i, q.Addr),
				"a client declined address %s because another host uses it", q.Addr).
				WithRemedy("find the other host with arping on the VLAN, and remove the address from it, or exclude the address (infraComponents.dhcp.exclude)"))
		}
		delete(used, "")
		for _, mac := range slices.Sorted(maps.Keys(used)) {
			list = append(list, f.usedBy(i, mac, used[mac]))
		}
	}
	return list
}

// leaseRef returns the Lease of an address of a pool; empty if its store has none.
func (f *facts) leaseRef(i int, a netip.Addr) model.Ref {
	l := &f.Leasedb[i]
	if l.Store != "kubernetes" {
		return model.Ref{}
	}
	return model.Ref{Kind: "Lease", Namespace: l.At, Name: dhcplease.Name(l.Pool, a)}
}

// usedBy returns the problem of a host that answers for addresses of a pool.
func (f *facts) usedBy(i int, mac string, used []leasedb.Quarantine) problem.Problem {
	object, host := f.infra(), "the host with MAC address "+mac
	if vm := f.interfaceOf(mac); vm != "" {
		object, host = vmRef(vm), fmt.Sprintf("interface %s with MAC address %s", vm, mac)
	} else if len(used) == 1 && used[0].Declined {
		object = f.leaseRef(i, used[0].Addr)
	}
	var texts, evidence []string
	for n, q := range used {
		texts = append(texts, q.Addr.String())
		if n < maxNamed {
			evidence = append(evidence, fmt.Sprintf("%s: last answer at %s", q.Addr, formatTime(q.Seen)))
		}
	}
	if len(used) >= minProxied {
		return problem.Warned(problem.LeasedAddressInUse, object,
			"%s answers ARP requests for %d addresses of the DHCP ranges: the host does proxy ARP, and DHCP leases none of these addresses", host, len(used)).
			WithRemedy("disable proxy ARP on the host (net.ipv4.conf.INTERFACE.proxy_arp=0 on Linux, " +
				"'no ip proxy-arp' and 'no ip local-proxy-arp' on routers)").WithEvidence(evidence...)
	}
	return problem.Warned(problem.LeasedAddressInUse, object,
		"%s uses %s of the DHCP ranges without a lease: DHCP does not lease it to any other client", host, strings.Join(texts, " and ")).
		WithRemedy("remove the address from the host, or exclude it (infraComponents.dhcp.exclude); " +
			"DHCP leases it again half a minute after the host is gone").WithEvidence(evidence...)
}

// takenAddresses returns the problems of hosts that answer for addresses that are leased to VMs.
func (f *facts) takenAddresses() []problem.Problem {
	leases := map[netip.Addr]leasedb.Lease{}
	for i := range f.Leasedb {
		for _, l := range f.Leasedb[i].Leases {
			if l.State == dhcplease.StateBound && l.MAC != "" && isVM(l.Holder) && f.now.Sub(l.Used) >= takenGrace {
				leases[l.Addr] = l
			}
		}
	}
	var list []problem.Problem
	for _, h := range f.hosts {
		l, leased := leases[h.Address]
		if !leased || h.MAC == "" || h.MAC == l.MAC || f.now.Sub(h.Since) < takenGrace ||
			vmRef(f.interfaceOf(h.MAC)) == vmRef(l.Holder) {
			continue // another interface of the VM may answer as well
		}
		list = append(list, problem.Failed(problem.LeasedAddressInUse, vmRef(l.Holder),
			"another host, with MAC address %s, uses %s, which is leased to the VM with MAC address %s: packets to the VM go to the other host",
			h.MAC, h.Address, l.MAC))
	}
	return list
}

// lostLeases returns the problems of VMs whose Lease objects were deleted or edited.
func (f *facts) lostLeases() []problem.Problem {
	var list []problem.Problem
	for i := range f.Leasedb {
		for _, l := range f.Leasedb[i].Lost {
			p := problem.Warned(problem.LeaseLost, vmRef(l.Holder),
				"the Lease of the VM's address %s was deleted: the VM keeps it, and coredhcp stores the lease again when the VM renews it", l.Addr).
				WithEvidence("the VM renews it at " + formatTime(l.Renewal) + " at the latest")
			if l.NewHolder != "" {
				lease := f.leaseRef(i, l.Addr)
				p = problem.Failed(problem.LeaseLost, vmRef(l.Holder),
					"the Lease of the VM's address %s was edited and names %s: the VM gets another address at its next request", l.Addr, l.NewHolder).
					WithRemedy(`restore the holder: kubectl -n %s patch lease %s --type=merge -p '{"spec": {"holderIdentity": %q}}'`,
						lease.Namespace, lease.Name, l.Holder)
			}
			p.Since = l.At
			list = append(list, p)
		}
	}
	return list
}

// unrenewedLeases returns the problems of running VMs that do not renew their leases with this server. With replicas,
// a VM renews with the replica that it selected last, and only that replica can report it.
func (f *facts) unrenewedLeases() []problem.Problem {
	if f.Kubevirt == nil {
		return nil
	}
	alone := !slices.ContainsFunc(f.Heard, func(h dhcp4.Heard) bool { return len(h.MACs) == 0 })
	var list []problem.Problem
	for i := range f.Leasedb {
		l := &f.Leasedb[i]
		for _, u := range l.Unrenewed {
			at := slices.IndexFunc(f.Kubevirt.Clients, func(c kubevirt.Client) bool { return c.Interface == u.Holder })
			if at < 0 || f.now.Sub(u.Since) < minUnrenewed {
				continue
			}
			vm := &f.Kubevirt.Clients[at]
			server, _ := f.selected(vm.MAC)
			if vm.Running.IsZero() || vm.Running.After(u.Since) || server != l.Server && (server.IsValid() || !alone) {
				continue
			}
			p := problem.Warned(problem.LeaseNotRenewed, vmRef(u.Holder),
				"the VM does not renew the lease of %s, for longer than the lease time: it has lost the VLAN, hangs, or configures the address without DHCP", u.Addr)
			p.Since = u.Since
			list = append(list, p)
		}
	}
	return list
}
