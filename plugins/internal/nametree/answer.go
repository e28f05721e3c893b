package nametree

import (
	"github.com/miekg/dns"
)

// Kind says what an answer amounts to. Metrics are labelled with it.
type Kind string

// The kinds of answer that a node gives.
const (
	Success  Kind = "success"
	NoData   Kind = "nodata"
	NXDomain Kind = "nxdomain"
	Refused  Kind = "refused"
)

// Answer fills in the reply m for qname, which is this node's name in the client's
// spelling, and qtype. A type that the name does not have is NODATA, whatever an
// upstream might know: an address hint from there would break the split horizon.
func (n *Node) Answer(m *dns.Msg, qname string, qtype uint16) Kind {
	m.Authoritative = true
	var answer []dns.RR
	switch {
	case qtype == dns.TypeA:
		answer = n.A
	case qtype == dns.TypeAAAA:
		answer = n.AAAA
	case qtype == dns.TypeANY:
		answer = minimalANY(qname)
	case qtype == dns.TypeAXFR || qtype == dns.TypeIXFR:
		m.Authoritative = false
		m.Rcode = dns.RcodeRefused
		return Refused
	case n.Apex && qtype == dns.TypeSOA:
		answer = n.Zone.SOA
	case n.Apex && qtype == dns.TypeNS:
		answer = n.Zone.NS
		m.Extra = n.Zone.Glue
	}
	if len(answer) == 0 {
		m.Ns = n.Zone.Negative
		return NoData
	}
	m.Answer = ownedBy(answer, qname)
	return Success
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
	m.Ns = n.Zone.Negative
	return NXDomain
}

// minimalANY is the answer of RFC 8482 section 4.2.
func minimalANY(qname string) []dns.RR {
	return []dns.RR{&dns.HINFO{
		Hdr: dns.RR_Header{Name: qname, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: NegativeTTL},
		Cpu: "RFC8482",
	}}
}

// ownedBy returns the records under the client's spelling of their name. What a
// wildcard made, or a resolver that mixes case asked for, costs a copy.
func ownedBy(rrs []dns.RR, qname string) []dns.RR {
	if rrs[0].Header().Name == qname {
		return rrs
	}
	if a, ok := rrs[0].(*dns.A); ok && len(rrs) == 1 {
		one := &struct { // one allocation for what nearly every answer is
			rrs [1]dns.RR
			a   dns.A
		}{a: *a}
		one.a.Hdr.Name = qname
		one.rrs[0] = &one.a
		return one.rrs[:]
	}
	own := make([]dns.RR, len(rrs))
	for i, rr := range rrs {
		own[i] = dns.Copy(rr)
		own[i].Header().Name = qname
	}
	return own
}
