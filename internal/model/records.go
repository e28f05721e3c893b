package model

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Record is a set of DNS records with one name and type in a view.
type Record struct {
	// Name is in lower case and without a trailing dot. Its first label may be "*".
	Name string                 `json:"name"`
	Type v1alpha1.DNSRecordType `json:"type"`
	// Addresses are the values of A and AAAA records.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Values are the values of other records: names without a trailing dot (CNAME and PTR), "priority weight port
	// target" (SRV), or texts (TXT).
	Values []string `json:"values,omitempty"`
	// TTL is the time that clients may cache the records, in seconds; nil for the server's default.
	TTL *uint32 `json:"ttl,omitempty"`
	// From is the object that defines the records.
	From *RecordSource `json:"from"`
}

// RecordSource is the object and its field that define a record.
type RecordSource struct {
	Object Ref    `json:"object"`
	Field  string `json:"field"`
}

// recordsKind is the kind of the source of a RecordSet. If two sources define a name, the lower kind takes
// precedence.
type recordsKind int

const (
	recordsStatic recordsKind = iota
	recordsBackend
	recordsVM
	recordsEgress
)

// RecordSet has the records of one source in a view, in addition to the names of hosted clusters.
type RecordSet struct {
	// Owner is the object that problems are reported for.
	Owner Ref
	// Records are sorted by name and type; VM records by VM name, with the addresses' records last.
	Records []*Record

	kind    recordsKind
	created time.Time // of the owner
	cluster *Cluster  // that the owner serves; nil for none
	// any is set if names may be in domains of all clusters.
	any bool
	// VMs' names are in domain, and their addresses' names in the zones in reverse.
	domain      string
	reverse     []string
	nameServers []netip.Addr
}

func (s *RecordSet) equal(o *RecordSet) bool {
	return s == o || s.Owner == o.Owner && s.kind == o.kind && s.created.Equal(o.created) && s.cluster == o.cluster && s.domain == o.domain &&
		slices.Equal(s.reverse, o.reverse) && slices.Equal(s.nameServers, o.nameServers) &&
		slices.EqualFunc(s.Records, o.Records, func(a, b *Record) bool { return a == b || reflect.DeepEqual(a, b) })
}

func compareRecordSets(a, b *RecordSet) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), a.created.Compare(b.created), compareRefs(a.Owner, b.Owner))
}

// NewRecordSet returns records that belong to no Infra, with names in the domains of any cluster of a view. faults
// are why records were left out.
func NewRecordSet(owner Ref, field string, list []v1alpha1.DNSRecord) (set *RecordSet, faults []string) {
	set = &RecordSet{Owner: owner, kind: recordsStatic, any: true}
	from := &RecordSource{Object: owner, Field: field}
	for i := range list {
		r, err := parseRecord(&list[i], from)
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s %s: %v", list[i].Name, list[i].Type, err))
			continue
		}
		set.Records = append(set.Records, &r)
	}
	slices.SortStableFunc(set.Records, compareRecords)
	return set, faults
}

// With returns the view with additional records.
func (v *View) With(records []*RecordSet) *View {
	if len(records) == 0 {
		return v
	}
	return NewView(v.from, slices.Concat(v.sets, records), nil)
}

// Conflicts returns why names of an owner are not served.
func (v *View) Conflicts(owner Ref) []Problem {
	return slices.DeleteFunc(slices.Clone(v.conflicts), func(p Problem) bool { return p.Object != owner })
}

// staticRecord is an entry of an Infra's records.
type staticRecord struct {
	*Record
	views []v1alpha1.DNSView
}

const recordsField = "spec.infraComponents.dns.records"

// readRecords parses the records of the spec. Invalid ones are reported and ignored.
func (i *Infra) readRecords(list []v1alpha1.DNSRecord, found *problems) {
	from := &RecordSource{Object: i.Ref, Field: recordsField}
	for n := range list {
		in := &list[n]
		r, err := parseRecord(in, from)
		if err != nil {
			found.add(i.Ref, ReasonInvalidRecord, "%s: %s %s is not served: %v", recordsField, in.Name, in.Type, err)
			continue
		}
		i.records = append(i.records, staticRecord{&r, viewsOf(in.Views)})
	}
	slices.SortStableFunc(i.records, func(a, b staticRecord) int { return compareRecords(a.Record, b.Record) })
}

func compareRecords(a, b *Record) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
}

// recordSets returns the records of an Infra in a view, whose DNS servers have the given addresses.
func (b *builder) recordSets(i *Infra, view v1alpha1.DNSView, servers []netip.Addr) []*RecordSet {
	var sets []*RecordSet
	static := &RecordSet{Owner: i.Ref, kind: recordsStatic, created: i.created, cluster: i.Cluster}
	for _, r := range i.records {
		if slices.Contains(r.views, view) {
			static.Records = append(static.Records, r.Record)
		}
	}
	if len(static.Records) > 0 {
		sets = append(sets, static)
	}
	if names := b.vmNames(i, view, servers); names != nil {
		sets = append(sets, names)
	}
	return sets
}

// vlanRecords returns the records of the Infras on a VLAN.
func (b *builder) vlanRecords(v *VLAN) []*RecordSet {
	var sets []*RecordSet
	for _, i := range v.infras {
		sets = slices.Concat(sets, b.recordSets(i, v1alpha1.DNSViewVLAN, i.DNS), b.backendNames(i), b.egressNames(i))
	}
	return sets
}

// podRecords returns the records of the pods' view.
func (b *builder) podRecords() []*RecordSet {
	var sets []*RecordSet
	for _, c := range b.clusters {
		for _, i := range c.infras {
			sets = append(sets, b.recordSets(i, v1alpha1.DNSViewPod, b.services.addresses(i.Key()+"-dns"))...)
		}
	}
	return sets
}

// podRecordNames returns the names of the Infra's records in the pods' view, and the zones of its VMs there, except the domain of
// the hosted cluster.
func (i *Infra) podRecordNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range i.records {
			if slices.Contains(r.views, v1alpha1.DNSViewPod) && !yield(strings.TrimPrefix(r.Name, "*.")) {
				return
			}
		}
		if names := i.vmNamesSpec; names.IsEnabled() && slices.Contains(viewsOf(names.Views), v1alpha1.DNSViewPod) {
			zones := []string{names.Domain}
			for _, cidr := range i.CIDRs {
				zones = append(zones, reverseZones(cidr)...)
			}
			for _, zone := range zones {
				if !yield(zone) {
					return
				}
			}
		}
	}
}

// parseRecord returns the record of an entry. The API server rejects most entries for which it returns an error, but an
// object may be read from a file.
func parseRecord(in *v1alpha1.DNSRecord, from *RecordSource) (Record, error) {
	r := Record{Type: in.Type, From: from}
	var err error
	if r.Name, err = recordName(in.Name); err != nil {
		return r, err
	}
	if in.TTL != nil {
		r.TTL = new(uint32(max(0, *in.TTL)))
	}
	if len(in.Values) == 0 || in.Type == v1alpha1.DNSRecordCNAME && len(in.Values) > 1 {
		return r, fmt.Errorf("it has %d values", len(in.Values))
	}
	for _, text := range in.Values {
		if err := r.addValue(text); err != nil {
			return r, err
		}
	}
	r.Addresses = sortedAddrs(r.Addresses)
	slices.Sort(r.Values)
	r.Values = slices.Compact(r.Values)
	return r, nil
}

// appendAddressRecords appends the A and the AAAA record of a name. The addresses are sorted, IPv4 first.
func appendAddressRecords(list []*Record, name string, addresses []netip.Addr, from *RecordSource) []*Record {
	v6 := slices.IndexFunc(addresses, netip.Addr.Is6)
	if v6 < 0 {
		v6 = len(addresses)
	}
	if v6 > 0 {
		list = append(list, &Record{Name: name, Type: v1alpha1.DNSRecordA, Addresses: addresses[:v6:v6], From: from})
	}
	if v6 < len(addresses) {
		list = append(list, &Record{Name: name, Type: v1alpha1.DNSRecordAAAA, Addresses: addresses[v6:], From: from})
	}
	return list
}

// recordName returns the name of a record, in lower case and without a trailing dot.
func recordName(s string) (string, error) {
	name, err := cleanHost(s)
	if err != nil {
		return "", err
	}
	switch domain := strings.TrimPrefix(name, "*."); {
	case !strings.Contains(domain, "."):
		return "", fmt.Errorf("%q is a single label; add the domain", s)
	case within(domain, "cluster.local"):
		return "", fmt.Errorf("%q is in cluster.local, the domain of the management cluster's Services", s)
	case strings.HasPrefix(name, ACMEChallenge):
		return "", fmt.Errorf("%q must not be a record: DNS forwards the names of ACME challenges to the upstream resolvers", s)
	}
	return name, nil
}

// addValue parses a value and appends it.
func (r *Record) addValue(text string) error {
	switch r.Type {
	case v1alpha1.DNSRecordA, v1alpha1.DNSRecordAAAA:
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" || address.Is4() != (r.Type == v1alpha1.DNSRecordA) {
			return fmt.Errorf("%q is not an address of the type %s", text, r.Type)
		}
		r.Addresses = append(r.Addresses, address)
	case v1alpha1.DNSRecordCNAME, v1alpha1.DNSRecordPTR:
		target, err := cleanName(text)
		if err != nil {
			return err
		}
		if target == r.Name {
			return fmt.Errorf("it refers to itself")
		}
		r.Values = append(r.Values, target)
	case v1alpha1.DNSRecordSRV:
		value, err := serviceValue(text)
		if err != nil {
			return err
		}
		r.Values = append(r.Values, value)
	case v1alpha1.DNSRecordTXT:
		r.Values = append(r.Values, text)
	default:
		return fmt.Errorf("the type %q is not supported", r.Type)
	}
	return nil
}

// serviceValue returns the value of an SRV record, "priority weight port target".
func serviceValue(text string) (string, error) {
	fields := strings.Fields(text)
	if len(fields) != 4 {
		return "", fmt.Errorf("%q is not priority, weight, port and target", text)
	}
	for _, number := range fields[:3] {
		if _, err := strconv.ParseUint(number, 10, 16); err != nil {
			return "", fmt.Errorf("%q: %s is not a number from 0 to 65535", text, number)
		}
	}
	if fields[3] != "." { // the service is not available (RFC 2782)
		target, err := cleanName(fields[3])
		if err != nil {
			return "", err
		}
		fields[3] = target
	}
	return strings.Join(fields, " "), nil
}

// addRecordSet adds the records of a source, except those with names that others have. The address of a VM whose name
// is not served does not get a name, either.
func (b *viewBuilder) addRecordSet(s *RecordSet) {
	list := s.Records
	if s.kind != recordsVM {
		list = shortestFirst(list)
	}
	b.parentFaults = map[string]string{}
	for _, r := range list {
		if s.kind == recordsVM && r.Type == v1alpha1.DNSRecordPTR && b.records[r.Values[0]] != s {
			continue
		}
		if why := b.recordFault(s, r); why != "" {
			b.conflicts.add(s.Owner, ReasonRecordConflict, "%s: %s %s is not served: %s", s.field(r), r.Name, r.Type, why)
			continue
		}
		if b.records[r.Name] == nil {
			b.records[r.Name] = s
			switch {
			case s.kind != recordsVM:
				b.openZone(s, strings.TrimPrefix(r.Name, "*."))
			case r.Type != v1alpha1.DNSRecordPTR: // those are in the reverse zones
				b.openZone(s, s.domain)
			}
		}
		b.view.Records = append(b.view.Records, r)
	}
}

// field returns what defines a record, in a problem of the owner.
func (s *RecordSet) field(r *Record) string {
	if r.From.Object == s.Owner {
		return r.From.Field
	}
	return r.From.Field + " of " + r.From.Object.String()
}

// shortestFirst returns records sorted by the length of their names, so that parents come before names below them.
func shortestFirst(records []*Record) []*Record {
	list := slices.Clone(records)
	slices.SortStableFunc(list, func(a, b *Record) int { return cmp.Compare(len(a.Name), len(b.Name)) })
	return list
}

// recordFault returns why a record cannot be served; "" if it can.
func (b *viewBuilder) recordFault(s *RecordSet, r *Record) string {
	domain := strings.TrimPrefix(r.Name, "*.")
	switch owner := b.apps[domain]; {
	case b.names[r.Name] != nil:
		return "it is a control-plane name of " + b.names[r.Name].String() + "; choose another name"
	case owner != nil:
		return "it is an apps name of " + owner.String() + "; choose another name"
	}
	if first := b.records[r.Name]; first != nil && first != s {
		return "another record of " + first.Owner.String() + " has the name; choose another name"
	}
	if r.Type == v1alpha1.DNSRecordCNAME {
		if b.zones[r.Name] != nil {
			return "it is the domain of a hosted cluster, which cannot be an alias"
		}
		if b.records[r.Name] != nil {
			return "the name has other records; remove them, or the CNAME"
		}
		b.aliases[r.Name] = true
	} else if b.aliases[r.Name] {
		return "the name has a CNAME; remove it, or this record"
	}
	if r.Type == v1alpha1.DNSRecordPTR && s.kind == recordsVM { // in its own zone
		return ""
	}
	if why := b.domainFault(s, domain); why != "" {
		return why
	}
	_, parent, _ := strings.Cut(domain, ".")
	why, known := b.parentFaults[parent]
	if !known {
		for at := range nameAndParents(parent) {
			if why = b.domainFault(s, at); why != "" {
				break
			}
		}
		b.parentFaults[parent] = why
	}
	return why
}

// domainFault returns why the names in a domain, and the domain's own, cannot be records; "" if they can.
func (b *viewBuilder) domainFault(s *RecordSet, domain string) string {
	switch owner := cmp.Or(b.zones[domain], b.apps[domain]); {
	case owner == nil:
		return ""
	case owner != s.cluster && !s.any:
		return "it lies in " + domain + ", a domain of " + owner.String() + "; choose another name"
	case s.kind == recordsVM && b.apps[domain] != nil: // a record may replace an app; a VM's name would do so by chance
		return "it lies in " + domain + ", an apps domain of " + owner.String() + "; choose another domain"
	default:
		return ""
	}
}

// addReverseZones adds the zones of the addresses of VMs. The view is authoritative for all names in them.
func (b *viewBuilder) addReverseZones(s *RecordSet) {
	for _, origin := range s.reverse {
		if b.isInZone(origin) {
			continue
		}
		b.open[origin] = false
		zone := s.zone(b, origin)
		if server := zone.NameServer(); zone.Domain == origin && b.names[server] == nil {
			b.view.Names = append(b.view.Names, Name{Name: server, Target: &Target{Cluster: s.Owner, Addresses: s.nameServers}})
		}
		b.view.Zones = append(b.view.Zones, zone)
	}
}

// openZone adds a zone for names of a source that are in no zone yet. Names in it that do not exist are forwarded.
func (b *viewBuilder) openZone(s *RecordSet, origin string) {
	if b.isInZone(origin) {
		return
	}
	b.open[origin] = true
	zone := s.zone(b, origin)
	zone.Open = true
	b.view.Zones = append(b.view.Zones, zone)
}

// isInZone reports whether a name is in a zone of a cluster or of records.
func (b *viewBuilder) isInZone(name string) bool {
	for at := range nameAndParents(name) {
		if _, records := b.open[at]; records || b.zones[at] != nil {
			return true
		}
	}
	return false
}

// zone returns a zone for records of the source. Its name server is the name server of the owner's cluster, if the
// view has one.
func (s *RecordSet) zone(b *viewBuilder, origin string) Zone {
	zone := Zone{Origin: origin, Cluster: &s.Owner, Domain: origin}
	if s.cluster != nil {
		for _, domain := range s.cluster.Domains {
			if b.zones[domain] == s.cluster {
				zone.Domain = domain
				break
			}
		}
	}
	return zone
}
