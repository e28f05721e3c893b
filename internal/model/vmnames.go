package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/objects"
)

const vmNamesField = "spec.infraComponents.dns.vmNames"

// leasePool has the DHCP leases of one pool.
type leasePool struct {
	leases map[string]*objects.DHCPLease // by name
	nics   map[nic][]*objects.DHCPLease
	hosts  []*vmHost  // of the leases in force, by name; replaced, not modified
	last   *vmRecords // the last result of records
}

// A nic is the interface of a VM, in one address family. The newest of its leases is in force.
type nic struct {
	vm, name string
	v4       bool
}

// A vmHost is a host name in lower case and the leases in force with it, oldest first. It is immutable.
type vmHost struct {
	name   string
	leases []*objects.DHCPLease
}

// vmRecords are the records of VMs' names.
type vmRecords struct {
	domain  string
	cidrs   []netip.Prefix
	hosts   []servedHost
	records []*Record
	faults  []string // why names are missing
}

// A servedHost is a host and its records.
type servedHost struct {
	*vmHost

	records []*Record
	faults  []string
}

// Pool returns the name of the DHCP pool of the Infra "namespace/name".
func Pool(infra string) string { return strings.Replace(infra, "/", ".", 1) }

// setLease changes a lease, and dissolves the groups that read its pool.
func (u *update) setLease(c Change, now *objects.DHCPLease) {
	pool, _, ok := dhcplease.ParseName(c.Name)
	if !ok || !strings.HasPrefix(pool, c.Namespace+".") {
		return // another namespace must not publish names
	}
	p := u.all.leases[pool]
	if p == nil {
		p = &leasePool{leases: map[string]*objects.DHCPLease{}, nics: map[nic][]*objects.DHCPLease{}}
		u.all.leases[pool] = p
	}
	if now != nil && !now.Address.IsValid() {
		now = nil
	}
	if before := p.leases[c.Name]; before != nil {
		p.setInterface(before, false)
		delete(p.leases, c.Name)
	} else if now == nil {
		return
	}
	if now != nil {
		p.leases[c.Name] = now
		p.setInterface(now, true)
	}
	u.touch(key{readLeases, pool})
}

// setInterface adds a lease to its interface's leases, or removes it.
func (p *leasePool) setInterface(l *objects.DHCPLease, add bool) {
	key := nic{l.VM, l.Interface, l.Address.Is4()}
	before := p.nics[key]
	now := slices.DeleteFunc(slices.Clone(before), func(o *objects.DHCPLease) bool { return o == l })
	if add {
		now = append(now, l)
	}
	if p.nics[key] = now; len(now) == 0 {
		delete(p.nics, key)
	}
	if was, is := newestLease(before), newestLease(now); was != is {
		p.setHost(was, false)
		p.setHost(is, true)
	}
}

// newestLease returns the lease in force among an interface's leases; nil for none.
func newestLease(list []*objects.DHCPLease) *objects.DHCPLease {
	if len(list) == 0 {
		return nil
	}
	return slices.MaxFunc(list, func(a, b *objects.DHCPLease) int { return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.Name, b.Name)) })
}

// setHost adds a lease, which may be nil, to its host's leases, or removes it.
func (p *leasePool) setHost(l *objects.DHCPLease, add bool) {
	if l == nil {
		return
	}
	h := &vmHost{name: strings.ToLower(l.Hostname)}
	at, found := slices.BinarySearchFunc(p.hosts, h.name, func(h *vmHost, name string) int { return cmp.Compare(h.name, name) })
	end := at
	if found {
		h.leases = slices.DeleteFunc(slices.Clone(p.hosts[at].leases), func(o *objects.DHCPLease) bool { return o == l })
		end++
	}
	if add {
		h.leases = append(h.leases, l)
		slices.SortFunc(h.leases, func(a, b *objects.DHCPLease) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
	}
	var now []*vmHost
	if len(h.leases) > 0 {
		now = []*vmHost{h}
	}
	p.hosts = slices.Concat(p.hosts[:at], now, p.hosts[end:])
}

// records returns the records of the pool's VMs in a domain, and of the addresses in the subnets.
func (p *leasePool) records(domain string, cidrs []netip.Prefix) *vmRecords {
	p.last = newVMRecords(p.hosts, domain, cidrs, p.last)
	return p.last
}

// VMNames returns the records of the VMs with a lease from the DHCP of "namespace/name", if no Infra of that name is
// read. domain is the VMs' domain. Addresses in the subnets get PTR records. It returns nil without a domain.
func (s *Snapshot) VMNames(infra, domain string, cidrs []netip.Prefix) *RecordSet {
	if domain == "" {
		return nil
	}
	set := &RecordSet{Owner: ParseRef("Infra", infra), kind: recordsVM, any: true, domain: domain}
	for _, cidr := range cidrs {
		set.reverse = append(set.reverse, reverseZones(cidr)...)
	}
	set.Records = newVMRecords(s.vmHosts[Pool(infra)], domain, cidrs, nil).records
	return set
}

// newVMRecords returns the records of hosts. It reuses records of previous, which may be nil.
func newVMRecords(hosts []*vmHost, domain string, cidrs []netip.Prefix, previous *vmRecords) *vmRecords {
	var before []servedHost
	if previous != nil && previous.domain == domain && slices.Equal(previous.cidrs, cidrs) {
		before = previous.hosts
	}
	out := &vmRecords{domain: domain, cidrs: cidrs, hosts: make([]servedHost, 0, len(hosts)), records: make([]*Record, 0, 2*len(hosts))}
	for _, h := range hosts {
		for len(before) > 0 && before[0].vmHost != h && before[0].name <= h.name {
			before = before[1:]
		}
		var served servedHost
		if len(before) > 0 && before[0].vmHost == h {
			served, before = before[0], before[1:]
		} else {
			served = h.serve(domain, cidrs)
		}
		out.hosts = append(out.hosts, served)
		out.records = append(out.records, served.records...)
		out.faults = append(out.faults, served.faults...)
	}
	return out
}

// serve returns the records of a host, with its addresses' records last. Of two VMs with its name, the one with the
// older lease has the name.
func (h *vmHost) serve(domain string, cidrs []netip.Prefix) servedHost {
	out := servedHost{vmHost: h}
	vm := h.leases[0].VM
	name, err := cleanName(h.name + "." + domain)
	if err != nil {
		out.faults = []string{fmt.Sprintf("the name of VM %s is not served: %v", vm, err)}
		return out
	}
	from := &RecordSource{ParseRef("VirtualMachine", vm), "the DHCP lease"}
	var addresses []netip.Addr
	var reverse []*Record
	for _, l := range h.leases {
		if l.VM != vm {
			out.faults = append(out.faults, fmt.Sprintf("the name %s of VM %s is not served: VM %s has the name, too, and the older lease", name, l.VM, vm))
			continue
		}
		addresses = append(addresses, l.Address)
		if slices.ContainsFunc(cidrs, func(cidr netip.Prefix) bool { return cidr.Contains(l.Address) }) {
			reverse = append(reverse, &Record{Name: ReverseName(l.Address), Type: v1alpha1.DNSRecordPTR, Values: []string{name}, From: from})
		}
	}
	out.records = append(appendAddressRecords(nil, name, sortedAddrs(addresses), from), reverse...)
	return out
}

// vmNames returns the records of the VMs of an Infra in a view; nil for none. They include the reverse zones of its subnets.
func (b *builder) vmNames(i *Infra, view v1alpha1.DNSView, servers []netip.Addr) *RecordSet {
	names := i.vmNamesSpec
	pool := Pool(i.Key())
	if !names.IsEnabled() || !b.options.readsLeases(i.Key()) || !slices.Contains(viewsOf(names.Views), view) {
		return nil
	}
	out := &RecordSet{Owner: i.Ref, kind: recordsVM, created: i.created, cluster: i.Cluster, nameServers: servers}
	for _, cidr := range i.CIDRs {
		out.reverse = append(out.reverse, reverseZones(cidr)...)
	}
	if out.domain = names.Domain; out.domain == "" && i.Cluster != nil && len(i.Cluster.Domains) > 0 {
		out.domain = i.Cluster.Domains[0]
	}
	if out.domain == "" {
		b.found.add(i.Ref, ReasonInvalidRecord, "%s: the domain of VMs is missing; set domain, or wait until the hosted cluster has one", vmNamesField)
		return out
	}
	if _, err := recordName(out.domain); err != nil {
		b.found.add(i.Ref, ReasonInvalidRecord, "%s: VMs get no names: domain: %v", vmNamesField, err)
		return out
	}
	if p := b.leases[pool]; p != nil {
		r := p.records(out.domain, i.CIDRs)
		out.Records = r.records
		for _, fault := range r.faults {
			b.found.add(i.Ref, ReasonRecordConflict, "%s: %s", vmNamesField, fault)
		}
	}
	return out
}

// readsLeases reports whether the Leases of an Infra's DHCP are among the objects.
func (o Options) readsLeases(infra string) bool {
	return slices.ContainsFunc(o.Leases, func(l string) bool { return l == infra || l == AllLeases })
}

// viewsOf returns the views of a field: vlan if it is empty.
func viewsOf(views []v1alpha1.DNSView) []v1alpha1.DNSView {
	if len(views) == 0 {
		return []v1alpha1.DNSView{v1alpha1.DNSViewVLAN}
	}
	return views
}

// ReverseName returns the name of an address, whose PTR record has the host's name (RFC 1035, section 3.5, and RFC 3596,
// section 2.5).
func ReverseName(a netip.Addr) string {
	b := make([]byte, 0, 72)
	if a.Is4() {
		octets := a.As4()
		for _, octet := range slices.Backward(octets[:]) {
			b = append(strconv.AppendUint(b, uint64(octet), 10), '.')
		}
		return string(append(b, "in-addr.arpa"...))
	}
	const hex = "0123456789abcdef"
	octets := a.As16()
	for _, octet := range slices.Backward(octets[:]) {
		b = append(b, hex[octet&15], '.', hex[octet>>4], '.')
	}
	return string(append(b, "ip6.arpa"...))
}

// reverseZones returns the zones that contain exactly the names of the addresses in a subnet. They end at octets (IPv4) or
// digits (IPv6), so a subnet has up to 128 of them.
func reverseZones(subnet netip.Prefix) []string {
	step := 8
	if subnet.Addr().Is6() {
		step = 4
	}
	bits := (subnet.Bits() + step - 1) / step * step
	labels := (subnet.Addr().BitLen() - bits) / step // of the host's part
	var zones []string
	for zone := netip.PrefixFrom(subnet.Addr(), bits); subnet.Contains(zone.Addr()); zone = nextPrefix(zone) {
		name := ReverseName(zone.Addr())
		for range labels {
			_, name, _ = strings.Cut(name, ".")
		}
		zones = append(zones, name)
		if zone.Bits() == subnet.Bits() {
			break
		}
	}
	return zones
}

// nextPrefix returns the prefix of the same length after p; after the last one, the zero Addr's prefix.
func nextPrefix(p netip.Prefix) netip.Prefix {
	octets := p.Addr().AsSlice()
	carry := 1 << ((8 - p.Bits()%8) % 8)
	for at := (p.Bits() - 1) / 8; at >= 0 && carry > 0; at-- {
		sum := int(octets[at]) + carry
		octets[at], carry = byte(sum&0xff), sum>>8
	}
	next, _ := netip.AddrFromSlice(octets)
	if carry > 0 {
		next = netip.Addr{}
	}
	return netip.PrefixFrom(next, p.Bits())
}
