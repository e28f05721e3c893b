package nametree

import "github.com/miekg/dns"

// Kind is the kind of an answer. Its String is the value of the label answer of metrics.
type Kind uint8

// Kinds of answers.
const (
	Success Kind = iota
	NoData
	NXDomain
	Refused
	// Kinds is the number of kinds.
	Kinds
)

// String returns the kind as the value of the label answer.
func (k Kind) String() string {
	return [Kinds]string{"success", "nodata", "nxdomain", "refused"}[k]
}

// Answer fills in the reply m to a query for this node, and returns the kind of the answer. qname is the node's name in
// the client's spelling. The answer to a type that the name does not have is NODATA, even if an upstream has that type:
// an address hint from there, as in an HTTPS record, would bypass the view. The records are not shared with the tree or
// other replies.
func (n *Node) Answer(m *dns.Msg, qname string, qtype uint16) Kind {
	m.Authoritative = true
	if n.records != nil && qtype != dns.TypeANY && qtype != dns.TypeAXFR && qtype != dns.TypeIXFR {
		if m.Answer = n.recordsOf(qname, qtype); m.Answer != nil {
			return Success
		}
	}
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

// authority returns the zone that is authoritative for a type of the node. DS belongs to the parent's side of a
// zone cut (RFC 4035, section 3.1.4.1).
func (n *Node) authority(qtype uint16) *Zone {
	if n.Apex && qtype == dns.TypeDS && n.Zone.parent != nil {
		return n.Zone.parent
	}
	return n.Zone
}

// recordsA returns the A records of the node, with the given spelling of its name.
func (n *Node) recordsA(qname string) []dns.RR {
	switch {
	case n.hasSingleA:
		return singleA(qname, n.ttl, n.a)
	case n.addresses == nil:
		return nil
	default:
		return addressesA(qname, n.ttl, *n.addresses)
	}
}

// recordsAAAA returns the AAAA records of the node, with the given spelling of its name.
func (n *Node) recordsAAAA(qname string) []dns.RR {
	if n.addresses == nil {
		return nil
	}
	return addressesAAAA(qname, n.ttl, *n.addresses)
}

// Deny fills in the reply m to a query for a name that does not exist and whose closest encloser is this node, and
// returns the kind of the answer.
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

// minimalANY returns the answer to ANY of RFC 8482, section 4.2.
func minimalANY(qname string) []dns.RR {
	return []dns.RR{&dns.HINFO{
		Hdr: dns.RR_Header{Name: qname, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: negativeTTL},
		Cpu: "RFC8482",
	}}
}
