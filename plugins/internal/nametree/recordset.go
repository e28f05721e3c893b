package nametree

import (
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// A recordSet has the records of one type of a name.
type recordSet struct {
	*model.Record

	rrtype uint16
	ttl    uint32
}

// rrtypes are the types of records.
var rrtypes = map[v1alpha1.DNSRecordType]uint16{
	v1alpha1.DNSRecordA: dns.TypeA, v1alpha1.DNSRecordAAAA: dns.TypeAAAA, v1alpha1.DNSRecordCNAME: dns.TypeCNAME,
	v1alpha1.DNSRecordSRV: dns.TypeSRV, v1alpha1.DNSRecordTXT: dns.TypeTXT, v1alpha1.DNSRecordPTR: dns.TypePTR,
}

// emptyNode returns the node of a name without records in the zone.
func (z *Zone) emptyNode() Node {
	if z.open { // the name also exists elsewhere
		return Node{Zone: z, Open: true}
	}
	return Node{Part: z.part, Zone: z}
}

// addRecord adds the records of a name.
func (t *builder) addRecord(r *model.Record, served bool) {
	node := t.addNamed(r.Name, served)
	if node == nil {
		return
	}
	if parent, wild := strings.CutPrefix(r.Name, "*."); wild {
		t.nodes[parent].Wildcard = node
	}
	ttl := node.Zone.ttls[ControlPlane]
	if r.TTL != nil {
		ttl = *r.TTL
	}
	if len(r.Addresses) > 0 && (node.addresses == nil || node.ttl == ttl) {
		addresses := r.Addresses
		if node.addresses != nil {
			addresses = slices.Concat(*node.addresses, r.Addresses)
		}
		node.setAddresses(&addresses)
		node.ttl, node.ownTTL = ttl, true
		return
	}
	var sets []recordSet
	if node.records != nil {
		sets = *node.records
	}
	sets = append(slices.Clip(sets), recordSet{r, rrtypes[r.Type], ttl})
	node.records = &sets
}

// newRecord returns the record of a value in the format of model.Record.
func newRecord(h dns.RR_Header, value string) dns.RR {
	switch h.Rrtype {
	case dns.TypeCNAME:
		return &dns.CNAME{Hdr: h, Target: dns.Fqdn(value)}
	case dns.TypePTR:
		return &dns.PTR{Hdr: h, Ptr: dns.Fqdn(value)}
	case dns.TypeSRV:
		f := append(strings.Fields(value), "", "", "", "") // the model only has complete values
		return &dns.SRV{Hdr: h, Priority: number(f[0]), Weight: number(f[1]), Port: number(f[2]), Target: dns.Fqdn(f[3])}
	default:
		return &dns.TXT{Hdr: h, Txt: characterStrings(value)}
	}
}

func number(s string) uint16 {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// maxCharacterString is the maximum length of a character string (RFC 1035, section 3.3).
const maxCharacterString = 255

// characterStrings divides a text into character strings of the maximum length, in presentation format.
func characterStrings(text string) []string {
	var list []string
	for chunk := range slices.Chunk([]byte(text), maxCharacterString) {
		list = append(list, strings.ReplaceAll(string(chunk), `\`, `\\`))
	}
	return list
}

// recordsOf returns the records of a type other than the node's addresses, or the CNAME of the node, with the given
// spelling of the name; nil for none.
func (n *Node) recordsOf(qname string, qtype uint16) []dns.RR {
	for _, set := range *n.records {
		if set.rrtype != qtype && set.rrtype != dns.TypeCNAME {
			continue
		}
		list := append(addressesA(qname, set.ttl, set.Addresses), addressesAAAA(qname, set.ttl, set.Addresses)...)
		for _, value := range set.Values {
			list = append(list, newRecord(header(qname, set.rrtype, set.ttl), value))
		}
		return list
	}
	return nil
}

// Target returns the name that the node is an alias of (CNAME), fully qualified; "" if it is none.
func (n *Node) Target() string {
	if n.records != nil {
		if first := (*n.records)[0]; first.rrtype == dns.TypeCNAME {
			return dns.Fqdn(first.Values[0])
		}
	}
	return ""
}
