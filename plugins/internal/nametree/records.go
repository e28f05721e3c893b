package nametree

import (
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/model"
)

// NegativeTTL is for how many seconds a negative answer may be cached (RFC 2308).
// It is short because installers ask for names before they exist.
const NegativeTTL = 5

// SOA timers for secondaries, which there are none of: what others use.
const (
	soaRefresh = 7200
	soaRetry   = 1800
	soaExpire  = 86400
)

// Zone holds the records of a zone's apex.
type Zone struct {
	// Origin is the zone's name, lower-case and with a trailing dot.
	Origin string
	// SOA is the zone's SOA record, Negative the same with the TTL of a negative answer.
	SOA, Negative []dns.RR
	// NS is the zone's NS record, Glue the addresses of the server that it names.
	NS, Glue []dns.RR

	part Part // whose the zone is
}

func newZone(z model.Zone, part Part, ttl, serial uint32) *Zone {
	origin, server := dns.Fqdn(z.Origin), dns.Fqdn(z.NameServer())
	header := func(rrtype uint16, ttl uint32) dns.RR_Header {
		return dns.RR_Header{Name: origin, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
	}
	soa := func(ttl uint32) []dns.RR {
		return []dns.RR{&dns.SOA{
			Hdr: header(dns.TypeSOA, ttl), Ns: server, Mbox: "hostmaster." + dns.Fqdn(z.Domain), Serial: serial,
			Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: NegativeTTL,
		}}
	}
	return &Zone{
		part:     part,
		Origin:   origin,
		SOA:      soa(ttl),
		Negative: soa(min(ttl, NegativeTTL)),
		NS:       []dns.RR{&dns.NS{Hdr: header(dns.TypeNS, ttl), Ns: server}},
	}
}

// records makes the A and AAAA records of a name. The slices are clipped: plugins
// further up append to what they are given.
func records(name string, addresses []netip.Addr, ttl uint32) (a, aaaa []dns.RR) {
	for _, address := range addresses {
		header := dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}
		if address.Is4() {
			a = append(a, &dns.A{Hdr: header, A: address.AsSlice()})
			continue
		}
		header.Rrtype = dns.TypeAAAA
		aaaa = append(aaaa, &dns.AAAA{Hdr: header, AAAA: address.AsSlice()})
	}
	return slices.Clip(a), slices.Clip(aaaa)
}
