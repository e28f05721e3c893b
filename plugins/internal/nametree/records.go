package nametree

import (
	"net/netip"
	"slices"

	"github.com/miekg/dns"
)

// negativeTTL is the time that a negative answer may be cached (RFC 2308), in seconds. It is short because
// installers query names before they exist.
const negativeTTL = 5

// SOA timers with customary values. They are for secondaries, which do not exist.
const (
	soaRefresh = 7200
	soaRetry   = 1800
	soaExpire  = 86400
)

// A Zone contains the data for the records of its apex and of the names in it.
type Zone struct {
	// Fields that every query reads come first, in one cache line.
	ttls [Apps + 1]uint32
	part Part // the part that the zone belongs to
	open bool // names that do not exist are left to a plugin that the tree does not serve

	// Origin is the zone's name, in lower case and with a trailing dot.
	Origin string

	server string // the name server
	mbox   string // the responsible mailbox
	serial uint32
	glue   []netip.Addr // addresses of the name server
	parent *Zone        // the enclosing zone; nil if it is not in the tree
}

// ttl returns the TTL of the zone's own records.
func (z *Zone) ttl() uint32 { return z.ttls[z.part] }

func header(owner string, rrtype uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
}

// soa returns the zone's SOA record, with the given spelling of its name.
func (z *Zone) soa(owner string, ttl uint32) []dns.RR {
	one := &struct { // one allocation
		rrs [1]dns.RR
		soa dns.SOA
	}{soa: dns.SOA{
		Hdr: header(owner, dns.TypeSOA, ttl), Ns: z.server, Mbox: z.mbox, Serial: z.serial,
		Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: negativeTTL,
	}}
	one.rrs[0] = &one.soa
	return one.rrs[:]
}

// negative returns the SOA record of a negative answer.
func (z *Zone) negative() []dns.RR { return z.soa(z.Origin, min(z.ttl(), negativeTTL)) }

// ns returns the zone's NS record, with the given spelling of its name.
func (z *Zone) ns(owner string) []dns.RR {
	return []dns.RR{&dns.NS{Hdr: header(owner, dns.TypeNS, z.ttl()), Ns: z.server}}
}

// additional returns the address records of the name server.
func (z *Zone) additional() []dns.RR {
	return append(addressesA(z.server, z.ttl(), z.glue), addressesAAAA(z.server, z.ttl(), z.glue)...)
}

// singleA returns the A record of a name with one IPv4 address, the most frequent answer, with one allocation.
func singleA(owner string, ttl uint32, address [4]byte) []dns.RR {
	one := &struct {
		rrs [1]dns.RR
		a   dns.A
		ip  [4]byte
	}{a: dns.A{Hdr: header(owner, dns.TypeA, ttl)}, ip: address}
	one.a.A, one.rrs[0] = one.ip[:], &one.a
	return one.rrs[:]
}

// addressesA returns the A records of a name.
func addressesA(owner string, ttl uint32, addresses []netip.Addr) []dns.RR {
	var rrs []dns.RR
	for _, address := range addresses {
		if address.Is4() {
			rrs = append(rrs, &dns.A{Hdr: header(owner, dns.TypeA, ttl), A: address.AsSlice()})
		}
	}
	return rrs
}

// addressesAAAA returns the AAAA records of a name. If it is one record, it needs one allocation.
func addressesAAAA(owner string, ttl uint32, addresses []netip.Addr) []dns.RR {
	var rrs []dns.RR
	for i, address := range addresses {
		if !address.Is6() {
			continue
		}
		if rrs == nil && !slices.ContainsFunc(addresses[i+1:], netip.Addr.Is6) {
			one := &struct {
				rrs  [1]dns.RR
				aaaa dns.AAAA
				ip   [16]byte
			}{aaaa: dns.AAAA{Hdr: header(owner, dns.TypeAAAA, ttl)}, ip: address.As16()}
			one.aaaa.AAAA, one.rrs[0] = one.ip[:], &one.aaaa
			return one.rrs[:]
		}
		rrs = append(rrs, &dns.AAAA{Hdr: header(owner, dns.TypeAAAA, ttl), AAAA: address.AsSlice()})
	}
	return rrs
}
