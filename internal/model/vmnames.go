package model

import (
	"cmp"
	"fmt"
	"maps"
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
	sorted []*objects.DHCPLease          // oldest first; nil if it must be computed
	last   *vmRecords                    // the last result of records
}

// vmRecords are the records of VMs' names.
type vmRecords struct {
	domain  string
	cidrs   []netip.Prefix
	records []Record
	faults  []string // why names are missing
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
		p = &leasePool{leases: map[string]*objects.DHCPLease{}}
		u.all.leases[pool] = p
	}
	if now == nil || !now.Address.IsValid() {
		if p.leases[c.Name] == nil {
			return
		}
		delete(p.leases, c.Name)
	} else {
		p.leases[c.Name] = now
	}
	p.sorted, p.last = nil, nil
	u.touch(key{readLeases, pool})
}

// records returns the records of the pool's VMs in a domain, and of the addresses in the subnets.
func (p *leasePool) records(domain string, cidrs []netip.Prefix) *vmRecords {
	if p.last == nil || p.last.domain != domain || !slices.Equal(p.last.cidrs, cidrs) {
		p.last = newVMRecords(p.current(), domain, cidrs)
	}
	return p.last
}

// current returns the leases in force, oldest first. Callers must not modify the result.
func (p *leasePool) current() []*objects.DHCPLease {
	if p.sorted == nil {
		p.sorted = make([]*objects.DHCPLease, 0, len(p.leases))
		type holder struct {
			vm, nic string
			v4      bool
		}
		newest := make(map[holder]*objects.DHCPLease, len(p.leases))
		for _, l := range p.leases {
			key := holder{l.VM, l.Interface, l.Address.Is4()}
			if last := newest[key]; last == nil || cmp.Or(last.Used.Compare(l.Used), cmp.Compare(last.Name, l.Name)) < 0 {
				newest[key] = l
			}
		}
		p.sorted = slices.AppendSeq(p.sorted, maps.Values(newest))
		slices.SortFunc(p.sorted, func(a, b *objects.DHCPLease) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
	}
	return p.sorted
}

// VMNames returns the records of the VMs with a lease of the DHCP of "namespace/name", if no Infra of that name is read. domain is
// that of the VMs, and the names of addresses in the subnets are among the records. It returns nil without a domain.
func (s *Snapshot) VMNames(infra, domain string, cidrs []netip.Prefix) *RecordSet {
	if domain == "" {
		return nil
	}
	set := &RecordSet{Owner: ParseRef("Infra", infra), kind: recordsVM, any: true, domain: domain}
	for _, cidr := range cidrs {
		set.reverse = append(set.reverse, reverseZones(cidr)...)
	}
	set.Records = newVMRecords(s.leases[Pool(infra)], domain, cidrs).records
	return set
}

// newVMRecords returns the records of leases, of which the oldest come first. Of two VMs with one host name, the one with the
// older lease has the name.
func newVMRecords(leases []*objects.DHCPLease, domain string, cidrs []netip.Prefix) *vmRecords {
	out := &vmRecords{domain: domain, cidrs: cidrs, records: make([]Record, 0, 2*len(leases))}
	type host struct {
		vm        string
		from      *RecordSource
		addresses []netip.Addr
	}
	hosts := make(map[string]*host, len(leases))
	for _, l := range leases {
		name, err := cleanName(l.Hostname + "." + domain)
		if err != nil {
			out.faults = append(out.faults, fmt.Sprintf("the name of VM %s is not served: %v", l.VM, err))
			continue
		}
		h := hosts[name]
		if h == nil {
			namespace, vm, _ := strings.Cut(l.VM, "/")
			h = &host{vm: l.VM, from: &RecordSource{Ref{"VirtualMachine", namespace, vm}, "the DHCP lease"}}
			hosts[name] = h
		}
		if h.vm != l.VM {
			out.faults = append(out.faults, fmt.Sprintf("the name %s of VM %s is not served: VM %s has the name, too, and the older lease", name, l.VM, h.vm))
			continue
		}
		h.addresses = append(h.addresses, l.Address)
		if slices.ContainsFunc(cidrs, func(cidr netip.Prefix) bool { return cidr.Contains(l.Address) }) {
			out.records = append(out.records, Record{Name: ReverseName(l.Address), Type: v1alpha1.DNSRecordPTR, Values: []string{name}, From: h.from})
		}
	}
	for name, h := range hosts {
		out.records = appendAddressRecords(out.records, name, sortedAddrs(h.addresses), h.from)
	}
	slices.SortFunc(out.records, compareRecords)
	slices.Sort(out.faults)
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
		b.found.add(i.Ref, ReasonInvalidRecord, "%s: the VMs have no domain: set domain, or wait until the hosted cluster has one", vmNamesField)
		return out
	}
	if _, err := recordName(out.domain); err != nil {
		b.found.add(i.Ref, ReasonInvalidRecord, "%s: the VMs have no names: domain: %v", vmNamesField, err)
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

// nextPrefix returns the prefix of the same length after p; that of the zero Addr after the last one.
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
