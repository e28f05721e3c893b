package nametree

import (
	"net/netip"
	"slices"
	"sync/atomic"

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

// Zone is what the records of a zone's apex, and of the names in it, are made of.
type Zone struct {
	// What every query needs comes first: it is one cache line then.
	ttls    [Apps + 1]uint32
	part    Part // whose the zone is
	tallies [Apps][kinds]atomic.Pointer[Tally]

	// Origin is the zone's name, lower-case and with a trailing dot.
	Origin string

	server string // the name server
	mbox   string // who is responsible
	serial uint32
	glue   []netip.Addr // the addresses of the server
	parent *Zone        // the zone around this one, if it is in the tree
}

// Tally counts one kind of a zone's answers for one server.
type Tally struct {
	// Server is the server.
	Server string
	// Generation is which generation of counters this one belongs to.
	Generation uint64
	// Counter counts.
	Counter interface{ Inc() }
}

// Tally is where a part's counter of one kind of the zone's answers is kept, so that
// it need not be looked up for each answer.
func (z *Zone) Tally(part Part, kind Kind) *atomic.Pointer[Tally] { return &z.tallies[part-1][kind] }

func newZone(z model.Zone, part Part, ttls TTLs, serial uint32) *Zone {
	zone := &Zone{
		Origin: dns.Fqdn(z.Origin), server: dns.Fqdn(z.NameServer()), mbox: "hostmaster." + dns.Fqdn(z.Domain),
		part: part, serial: serial,
	}
	for part, ttl := range ttls {
		zone.ttls[part] = ttl
	}
	return zone
}

// ttl is the TTL of the zone's own records.
func (z *Zone) ttl() uint32 { return z.ttls[z.part] }

func header(owner string, rrtype uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
}

// soa is the zone's SOA record under the given spelling of its name.
func (z *Zone) soa(owner string, ttl uint32) []dns.RR {
	one := &struct { // one allocation
		rrs [1]dns.RR
		soa dns.SOA
	}{soa: dns.SOA{
		Hdr: header(owner, dns.TypeSOA, ttl), Ns: z.server, Mbox: z.mbox, Serial: z.serial,
		Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: NegativeTTL,
	}}
	one.rrs[0] = &one.soa
	return one.rrs[:]
}

// negative is the SOA record of a negative answer.
func (z *Zone) negative() []dns.RR { return z.soa(z.Origin, min(z.ttl(), NegativeTTL)) }

// ns is the zone's NS record under the given spelling of its name.
func (z *Zone) ns(owner string) []dns.RR {
	return []dns.RR{&dns.NS{Hdr: header(owner, dns.TypeNS, z.ttl()), Ns: z.server}}
}

// additional are the addresses of the name server.
func (z *Zone) additional() []dns.RR {
	return append(addressesA(z.server, z.ttl(), z.glue), addressesAAAA(z.server, z.ttl(), z.glue)...)
}

// oneA makes the A record of a name with one address, which nearly every answer is, in
// one allocation.
func oneA(owner string, ttl uint32, address [4]byte) []dns.RR {
	one := &struct {
		rrs [1]dns.RR
		a   dns.A
		ip  [4]byte
	}{a: dns.A{Hdr: header(owner, dns.TypeA, ttl)}, ip: address}
	one.a.A, one.rrs[0] = one.ip[:], &one.a
	return one.rrs[:]
}

// addressesA makes the A records of a name.
func addressesA(owner string, ttl uint32, addresses []netip.Addr) []dns.RR {
	var rrs []dns.RR
	for _, address := range addresses {
		if address.Is4() {
			rrs = append(rrs, &dns.A{Hdr: header(owner, dns.TypeA, ttl), A: address.AsSlice()})
		}
	}
	return rrs
}

// addressesAAAA makes the AAAA records of a name; a single one in one allocation.
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
