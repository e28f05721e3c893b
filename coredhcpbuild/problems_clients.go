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
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/problem"
)

const (
	// settleTime is how long another server must be known: a new replica replies to the next request for other servers.
	settleTime = 2 * neighbours.Interval
	// maxSelectionAge is how long a selected server is reported. A VM renews its lease by unicast, which other
	// servers do not receive.
	maxSelectionAge = 24 * time.Hour
	// maxRefusalAge is how long the refusal of a VM's address is reported: the VM requests another one at once.
	maxRefusalAge = time.Hour
	// maxReplyAge is how long any other reply is reported. coredhcp requests one every 15 seconds.
	maxReplyAge = 50 * time.Second

	// A VM counts as one that receives no offers if it has ignored minOffers offers within minOfferTime or more, and the last one
	// at most maxOfferAge ago. Clients wait for longer between two requests, the more they have sent.
	minOffers    = 3
	minOfferTime = 3 * time.Second
	maxOfferAge  = 90 * time.Second

	// A client is unknown if it has sent minUnknown requests within minUnknownTime or more, the last one at most maxRetryInterval
	// ago. Clients of another Infra get an address sooner.
	minUnknown     = 3
	minUnknownTime = 10 * time.Second
)

// isReplica reports whether a DHCP server is this server or one of its replicas. Replicas that were added after the configuration was
// written are recognized by their replies.
func (f *facts) isReplica(server netip.Addr) bool {
	for i := range f.Leasedb {
		if l := &f.Leasedb[i]; server == l.Server || slices.Contains(l.Protected, server) && !slices.Contains(f.foreign, server) {
			return true
		}
	}
	return slices.ContainsFunc(f.Heard, func(h dhcp4.Heard) bool { return h.Replica && h.Server == server })
}

// A contact is an observed DHCP server other than this one.
type contact struct {
	server      netip.Addr
	first, last time.Time
	maxAge      time.Duration
	did         string // what the server did, such as "refused the address of"
	mac         string // of a VM; empty for this server
	dealt       bool   // whether the VM has accepted or lost an address
}

// otherServers returns the problem of each other DHCP server that VMs of this server have dealt with, or that replies to its
// requests. Servers of other Infras do neither.
func (f *facts) otherServers() []problem.Problem {
	found := map[netip.Addr]problem.Problem{}
	add := func(c contact) {
		if f.isReplica(c.server) || f.now.Sub(c.first) < settleTime || f.now.Sub(c.last) > c.maxAge {
			return
		}
		p, known := found[c.server]
		if !known {
			p = problem.Warned(problem.OtherDHCPServer, f.infra(), "another DHCP server replies on the VLAN: %s", c.server).
				WithRemedy("find the server by its address; stop it, or configure it to ignore VMs if it is meant for other hosts")
		}
		if c.dealt {
			p.Severity, p.Remedy = problem.Fail, ""
		}
		if c.mac != "" {
			c.did += fmt.Sprintf(" VM interface %s with MAC address %s", f.interfaceOf(c.mac), c.mac)
		}
		found[c.server] = p.WithEvidence(c.did + "; the last time at " + formatTime(c.last))
	}
	if f.Kubevirt != nil {
		for i := range f.Kubevirt.Clients {
			mac := f.Kubevirt.Clients[i].MAC
			if server, at := f.selected(mac); server.IsValid() {
				add(contact{server, at, at, maxSelectionAge, "was selected by", mac, true})
			}
		}
	}
	for _, h := range f.Heard {
		if len(h.MACs) == 0 {
			add(contact{h.Server, h.First, h.Last, maxReplyAge, "replied with DHCP" + h.Type + " to a request of coredhcp", "", false})
		}
		for _, mac := range h.MACs {
			switch {
			case f.interfaceOf(mac) == "": // possibly of another Infra
			case h.Type == "NAK":
				add(contact{h.Server, h.First, h.Last, maxRefusalAge, "refused the address of", mac, true})
			default:
				add(contact{h.Server, h.First, h.Last, maxReplyAge, "replied with DHCP" + h.Type + " to", mac, false})
			}
		}
	}
	var list []problem.Problem
	for _, server := range slices.SortedFunc(maps.Keys(found), netip.Addr.Compare) {
		p := found[server]
		if more := len(p.Evidence) - maxNamed; more > 0 {
			p.Evidence = append(p.Evidence[:maxNamed:maxNamed], fmt.Sprintf("and %d more", more))
		}
		list = append(list, p)
	}
	return list
}

// ignoredOffers returns the problem of VMs that request none of the offers that they get, of any server.
func (f *facts) ignoredOffers() []problem.Problem {
	var evidence []string
	for _, o := range f.Offered {
		vm := f.interfaceOf(o.MAC)
		if vm == "" || o.Offers < minOffers || o.Last.Sub(o.First) < minOfferTime || f.now.Sub(o.Last) > maxOfferAge {
			continue
		}
		evidence = append(evidence, fmt.Sprintf("VM interface %s with MAC address %s: %d offers from %s to %s",
			vm, o.MAC, o.Offers, formatTime(o.First), formatTime(o.Last)))
	}
	if evidence == nil {
		return nil
	}
	return []problem.Problem{problem.Failed(problem.OffersIgnored, f.infra(),
		"DHCP offers addresses to VMs again and again, and receives no request: its packets do not reach the VMs").
		WithEvidence(evidence[:min(len(evidence), maxNamed)]...)}
}

// clientProblems returns the problems of VMs with the same MAC address or an invalid annotation, and of clients that are not VMs.
func (f *facts) clientProblems() []problem.Problem {
	k := f.Kubevirt
	if k == nil {
		return nil
	}
	var list []problem.Problem
	for _, mac := range slices.Sorted(maps.Keys(k.Duplicates)) {
		owners := k.Duplicates[mac]
		list = append(list, problem.Failed(problem.DuplicateMAC, vmRef(owners[len(owners)-1]),
			"the VM has MAC address %s, which %s also has: DHCP serves only the latter", mac, owners[0]).
			WithEvidence("interfaces with this MAC address: "+strings.Join(owners, ", ")))
	}
	for _, vm := range slices.Sorted(maps.Keys(k.Problems)) {
		if dhcplease.IsHost(vm) {
			list = append(list, problem.Warned(problem.AnnotationInvalid, f.infra(), "%s: %s; DHCP serves the host without the reservation", vm, k.Problems[vm]))
			continue
		}
		list = append(list, problem.Warned(problem.AnnotationInvalid, vmRef(vm), "%s; DHCP serves the VM without the annotation", k.Problems[vm]))
	}
	var evidence []string
	for _, c := range k.Unknown {
		if c.Requests >= minUnknown && c.Last.Sub(c.First) >= minUnknownTime && f.now.Sub(c.Last) <= maxRetryInterval && k.Synced {
			evidence = append(evidence, fmt.Sprintf("MAC address %s sent its last request at %s", c.MAC, formatTime(c.Last)))
		}
	}
	if evidence != nil {
		list = append(list, problem.Warned(problem.UnknownClient, f.infra(), "clients with MAC addresses of no VM request addresses: DHCP does not reply to them").
			WithEvidence(evidence[:min(len(evidence), maxNamed)]...))
	}
	return list
}
