package nametree

import (
	"iter"

	"github.com/miekg/dns"
)

// Kind says what an answer amounts to. Metrics are labelled with it.
type Kind uint8

// The kinds of answer that a node gives.
const (
	Success Kind = iota
	NoData
	NXDomain
	Refused
	kinds
)

// Kinds yields every kind.
func Kinds() iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		for k := range kinds {
			if !yield(k) {
				return
			}
		}
	}
}

// String returns the kind in one word.
func (k Kind) String() string {
	return [kinds]string{"success", "nodata", "nxdomain", "refused"}[k]
}

// Answer fills in the reply m for qname, which is this node's name in the client's
// spelling, and qtype. A type that the name does not have is NODATA, whatever an
// upstream might know: an address hint from there would break the split horizon.
// The records are the caller's own.
func (n *Node) Answer(m *dns.Msg, qname string, qtype uint16) Kind {
	m.Authoritative = true
	switch {
	case qtype == dns.TypeA:
		m.Answer = n.recordsA(qname)
	case qtype == dns.TypeAAAA:
		m.Answer = n.recordsAAAA(qname)
	case qtype == dns.TypeANY:
		m.Answer = minimalANY(qname)
	case qtype == dns.TypeAXFR || qtype == dns.TypeIXFR:
		m.Authoritative = false
		m.Rcode = dns.RcodeRefused
		return Refused
	case n.Apex && qtype == dns.TypeSOA:
		m.Answer = n.Zone.soa(qname, n.Zone.ttl())
	case n.Apex && qtype == dns.TypeNS:
		m.Answer = n.Zone.ns(qname)
		m.Extra = n.Zone.additional()
	}
	if len(m.Answer) == 0 {
		m.Ns = n.authority(qtype).negative()
		return NoData
	}
	return Success
}

// authority is the zone that a type of the node belongs to: DS is the parent's side of a
// cut (RFC 4035 section 3.1.4.1).
func (n *Node) authority(qtype uint16) *Zone {
	if n.Apex && qtype == dns.TypeDS && n.Zone.parent != nil {
		return n.Zone.parent
	}
	return n.Zone
}

// recordsA makes the A records of the node under a spelling of its name.
func (n *Node) recordsA(qname string) []dns.RR {
	switch {
	case n.lone:
		return oneA(qname, n.Zone.ttls[n.Part], n.a)
	case n.addresses == nil:
		return nil
	default:
		return addressesA(qname, n.Zone.ttls[n.Part], *n.addresses)
	}
}

// recordsAAAA makes the AAAA records.
func (n *Node) recordsAAAA(qname string) []dns.RR {
	if n.addresses == nil {
		return nil
	}
	return addressesAAAA(qname, n.Zone.ttls[n.Part], *n.addresses)
}

// Deny fills in the reply m for a name of which this node is the closest encloser
// and below which nothing else exists.
func (n *Node) Deny(m *dns.Msg, qtype uint16) Kind {
	m.Authoritative = true
	if qtype == dns.TypeAXFR || qtype == dns.TypeIXFR {
		m.Authoritative = false
		m.Rcode = dns.RcodeRefused
		return Refused
	}
	m.Rcode = dns.RcodeNameError
	m.Ns = n.Zone.negative()
	return NXDomain
}

// minimalANY is the answer of RFC 8482 section 4.2.
func minimalANY(qname string) []dns.RR {
	return []dns.RR{&dns.HINFO{
		Hdr: dns.RR_Header{Name: qname, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: NegativeTTL},
		Cpu: "RFC8482",
	}}
}
