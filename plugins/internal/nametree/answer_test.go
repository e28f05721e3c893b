package nametree

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/model"
)

const (
	outerSOA    = "a.example.com.\t5\tIN\tSOA\tns.dns.a.example.com. hostmaster.a.example.com. 1 7200 1800 86400 5"
	innerSOA    = "b.c.a.example.com.\t5\tIN\tSOA\tns.dns.b.c.a.example.com. hostmaster.b.c.a.example.com. 1 7200 1800 86400 5"
	hostnameSOA = "api.example.net.\t5\tIN\tSOA\tns.dns.a.example.com. hostmaster.a.example.com. 1 7200 1800 86400 5"
)

// query looks up a name and answers it, as a plugin does.
func query(tb testing.TB, t *Tree, qname string, qtype uint16) (*dns.Msg, Kind) {
	tb.Helper()
	m := new(dns.Msg)
	node, exact := t.Lookup(qname)
	switch {
	case node == nil:
		tb.Fatalf("no zone contains %s", qname)
		return nil, 0
	case exact:
		return m, node.Answer(m, qname, qtype)
	default:
		return m, node.Deny(m, qtype)
	}
}

// lines formats a reply: its header, then one record a line, prefixed with the section.
func lines(m *dns.Msg) []string {
	list := []string{dns.RcodeToString[m.Rcode]}
	if m.Authoritative {
		list[0] += " AA"
	}
	for _, section := range []struct {
		name string
		rrs  []dns.RR
	}{{"answer", m.Answer}, {"authority", m.Ns}, {"additional", m.Extra}} {
		for _, rr := range section.rrs {
			list = append(list, section.name+" "+rr.String())
		}
	}
	return list
}

func TestAnswer(t *testing.T) {
	tree := treeOf(t, nested)
	for _, tc := range []struct {
		name, qname string
		qtype       uint16
		kind        Kind
		want        []string
	}{
		{"A", "api.a.example.com.", dns.TypeA, Success, []string{
			"NOERROR AA", "answer api.a.example.com.\t30\tIN\tA\t192.0.2.3", "answer api.a.example.com.\t30\tIN\tA\t192.0.2.4",
		}},
		{"AAAA", "api.a.example.com.", dns.TypeAAAA, Success, []string{
			"NOERROR AA", "answer api.a.example.com.\t30\tIN\tAAAA\t2001:db8::3",
		}},
		{"the client's spelling", "ApI.a.eXample.cOm.", dns.TypeA, Success, []string{
			"NOERROR AA", "answer ApI.a.eXample.cOm.\t30\tIN\tA\t192.0.2.3", "answer ApI.a.eXample.cOm.\t30\tIN\tA\t192.0.2.4",
		}},
		{"AAAA of a name with A only", "x.y.z.a.example.com.", dns.TypeAAAA, NoData, []string{"NOERROR AA", "authority " + outerSOA}},
		{"A of a name without an address yet", "later.a.example.com.", dns.TypeA, NoData, []string{"NOERROR AA", "authority " + outerSOA}},
		{"A of an empty non-terminal", "y.z.a.example.com.", dns.TypeA, NoData, []string{"NOERROR AA", "authority " + outerSOA}},
		{"ANY is answered minimally", "Api.a.example.com.", dns.TypeANY, Success, []string{
			"NOERROR AA", "answer Api.a.example.com.\t5\tIN\tHINFO\t\"RFC8482\" \"\"",
		}},

		{"SOA", "a.example.com.", dns.TypeSOA, Success, []string{
			"NOERROR AA", "answer a.example.com.\t30\tIN\tSOA\tns.dns.a.example.com. hostmaster.a.example.com. 1 7200 1800 86400 5",
		}},
		{"SOA in the client's spelling", "A.example.com.", dns.TypeSOA, Success, []string{
			"NOERROR AA", "answer A.example.com.\t30\tIN\tSOA\tns.dns.a.example.com. hostmaster.a.example.com. 1 7200 1800 86400 5",
		}},
		{"SOA of a name that is no apex", "api.a.example.com.", dns.TypeSOA, NoData, []string{"NOERROR AA", "authority " + outerSOA}},
		{"NS with glue", "a.example.com.", dns.TypeNS, Success, []string{
			"NOERROR AA", "answer a.example.com.\t30\tIN\tNS\tns.dns.a.example.com.",
			"additional ns.dns.a.example.com.\t30\tIN\tA\t192.0.2.2", "additional ns.dns.a.example.com.\t30\tIN\tAAAA\t2001:db8::2",
		}},
		{"NS whose name server has no address yet", "b.c.a.example.com.", dns.TypeNS, Success, []string{
			"NOERROR AA", "answer b.c.a.example.com.\t30\tIN\tNS\tns.dns.b.c.a.example.com.",
		}},
		{"NS of a name that is no apex", "api.a.example.com.", dns.TypeNS, NoData, []string{"NOERROR AA", "authority " + outerSOA}},
		{"the address of the name server", "ns.dns.a.example.com.", dns.TypeA, Success, []string{
			"NOERROR AA", "answer ns.dns.a.example.com.\t30\tIN\tA\t192.0.2.2",
		}},

		{"another type in the inner zone", "api.b.c.a.example.com.", dns.TypeTXT, NoData, []string{"NOERROR AA", "authority " + innerSOA}},
		{"DS of the inner zone, for which the outer zone is authoritative", "b.c.a.example.com.", dns.TypeDS, NoData, []string{"NOERROR AA", "authority " + outerSOA}},
		{"DS of the outer zone, whose parent is not in the tree", "a.example.com.", dns.TypeDS, NoData, []string{"NOERROR AA", "authority " + outerSOA}},
		{"another type between the zones", "c.a.example.com.", dns.TypeTXT, NoData, []string{"NOERROR AA", "authority " + outerSOA}},
		{"A of a hostname zone", "api.example.net.", dns.TypeA, Success, []string{
			"NOERROR AA", "answer api.example.net.\t30\tIN\tA\t192.0.2.3",
		}},
		{"NS of a hostname zone, whose name server is in another zone", "api.example.net.", dns.TypeNS, Success, []string{
			"NOERROR AA", "answer api.example.net.\t30\tIN\tNS\tns.dns.a.example.com.",
			"additional ns.dns.a.example.com.\t30\tIN\tA\t192.0.2.2", "additional ns.dns.a.example.com.\t30\tIN\tAAAA\t2001:db8::2",
		}},
		{"another type of a hostname zone", "api.example.net.", dns.TypeHTTPS, NoData, []string{"NOERROR AA", "authority " + hostnameSOA}},

		{"unknown name", "nope.a.example.com.", dns.TypeA, NXDomain, []string{"NXDOMAIN AA", "authority " + outerSOA}},
		{"unknown name in the inner zone", "nope.b.c.a.example.com.", dns.TypeA, NXDomain, []string{"NXDOMAIN AA", "authority " + innerSOA}},
		{"unknown name between the zones", "nope.c.a.example.com.", dns.TypeA, NXDomain, []string{"NXDOMAIN AA", "authority " + outerSOA}},
		{"below a hostname zone", "www.api.example.net.", dns.TypeA, NXDomain, []string{"NXDOMAIN AA", "authority " + hostnameSOA}},
		{"zone transfer", "a.example.com.", dns.TypeAXFR, Refused, []string{"REFUSED"}},
		{"zone transfer of an unknown name", "nope.a.example.com.", dns.TypeIXFR, Refused, []string{"REFUSED"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, kind := query(t, tree, tc.qname, tc.qtype)
			if kind != tc.kind {
				t.Errorf("kind is %s, want %s", kind, tc.kind)
			}
			if diff := cmp.Diff(tc.want, lines(m)); diff != "" {
				t.Errorf("wrong reply (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryType queries every type. A type that a name does not have is NODATA or NXDOMAIN with the SOA of the
// zone, and is never passed to an upstream.
func TestEveryType(t *testing.T) {
	tree := treeOf(t, nested)
	refused := map[uint16]Kind{dns.TypeAXFR: Refused, dns.TypeIXFR: Refused}
	for _, tc := range []struct {
		name, qname string
		other       Kind // for the types that are not listed
		kinds       map[uint16]Kind
	}{
		{"name", "api.a.example.com.", NoData, map[uint16]Kind{dns.TypeA: Success, dns.TypeAAAA: Success, dns.TypeANY: Success}},
		{"apex", "a.example.com.", NoData, map[uint16]Kind{dns.TypeSOA: Success, dns.TypeNS: Success, dns.TypeANY: Success}},
		{"hostname zone", "api.example.net.", NoData, map[uint16]Kind{
			dns.TypeA: Success, dns.TypeSOA: Success, dns.TypeNS: Success, dns.TypeANY: Success,
		}},
		{"empty non-terminal", "z.a.example.com.", NoData, map[uint16]Kind{dns.TypeANY: Success}},
		{"unknown name", "nope.a.example.com.", NXDomain, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for qtype, text := range dns.TypeToString {
				want := tc.other
				for _, kinds := range []map[uint16]Kind{tc.kinds, refused} {
					if kind, ok := kinds[qtype]; ok {
						want = kind
					}
				}
				m, kind := query(t, tree, tc.qname, qtype)
				if kind != want {
					t.Errorf("%s is %s, want %s", text, kind, want)
				}
				negative := kind == NoData || kind == NXDomain
				if got := len(m.Ns) == 1 && m.Ns[0].Header().Rrtype == dns.TypeSOA; got != negative {
					t.Errorf("%s is %s, with a SOA: %t", text, kind, got)
				}
				if got := len(m.Answer) > 0; got != (kind == Success) {
					t.Errorf("%s is %s, with an answer: %t", text, kind, got)
				}
				if m.Authoritative == (kind == Refused) {
					t.Errorf("%s is %s, with AA %t", text, kind, m.Authoritative)
				}
			}
		})
	}
}

func TestTTLs(t *testing.T) {
	for _, tc := range []struct{ ttl, negative uint32 }{{0, 0}, {3, 3}, {5, 5}, {30, 5}, {3600, 5}} {
		t.Run(fmt.Sprint(tc.ttl), func(t *testing.T) {
			tree := New(viewOf(t, nested), TTLs{ControlPlane: tc.ttl}, 1)
			for _, q := range []dns.Question{
				{Name: "api.a.example.com.", Qtype: dns.TypeA}, {Name: "API.a.example.com.", Qtype: dns.TypeAAAA},
				{Name: "a.example.com.", Qtype: dns.TypeSOA}, {Name: "a.example.com.", Qtype: dns.TypeNS},
				{Name: "api.a.example.com.", Qtype: dns.TypeTXT}, {Name: "nope.a.example.com.", Qtype: dns.TypeA},
			} {
				m, _ := query(t, tree, q.Name, q.Qtype)
				for _, rr := range slices.Concat(m.Answer, m.Extra) {
					if rr.Header().Ttl != tc.ttl {
						t.Errorf("%s: TTL is not %d", rr, tc.ttl)
					}
				}
				for _, rr := range m.Ns {
					if rr.Header().Ttl != tc.negative {
						t.Errorf("%s: TTL is not %d", rr, tc.negative)
					}
				}
			}
		})
	}
}

func TestSerial(t *testing.T) {
	tree := New(viewOf(t, nested), TTLs{ControlPlane: 30}, 4294967295)
	for _, qtype := range []uint16{dns.TypeSOA, dns.TypeTXT} {
		m, _ := query(t, tree, "a.example.com.", qtype)
		soa, ok := slices.Concat(m.Answer, m.Ns)[0].(*dns.SOA)
		if !ok || soa.Serial != 4294967295 {
			t.Errorf("%s has no SOA with the serial", m)
		}
	}
}

// modify changes a reply as plugins in front of ours may: it appends to the sections and truncates them.
func modify(m *dns.Msg) {
	for _, section := range []*[]dns.RR{&m.Answer, &m.Ns, &m.Extra} {
		*section = append(*section, &dns.TXT{Hdr: dns.RR_Header{Name: "modified.", Rrtype: dns.TypeTXT}})
		*section = append((*section)[:0:len(*section)-1], *section...)
	}
	m.Rcode, m.Authoritative = dns.RcodeServerFailure, false
}

// TestRepliesAreIndependent modifies one reply and compares others with the original.
func TestRepliesAreIndependent(t *testing.T) {
	tree := treeOf(t, nested)
	for _, q := range []dns.Question{
		{Name: "api.a.example.com.", Qtype: dns.TypeA}, {Name: "api.a.example.com.", Qtype: dns.TypeAAAA},
		{Name: "a.example.com.", Qtype: dns.TypeSOA}, {Name: "a.example.com.", Qtype: dns.TypeNS},
		{Name: "api.a.example.com.", Qtype: dns.TypeTXT}, {Name: "nope.a.example.com.", Qtype: dns.TypeA},
	} {
		first, _ := query(t, tree, q.Name, q.Qtype)
		second, _ := query(t, tree, q.Name, q.Qtype)
		want := lines(second)
		modify(first)
		if diff := cmp.Diff(want, lines(second)); diff != "" {
			t.Errorf("%s %s: a modification of one reply changed another:\n%s", q.Name, dns.TypeToString[q.Qtype], diff)
		}
		third, _ := query(t, tree, q.Name, q.Qtype)
		if diff := cmp.Diff(want, lines(third)); diff != "" {
			t.Errorf("%s %s: a modification of a reply changed the next:\n%s", q.Name, dns.TypeToString[q.Qtype], diff)
		}
	}
}

// TestManyAddresses queries names with several addresses of each family. All addresses are in the reply, and a
// modification of one reply does not change the next.
func TestManyAddresses(t *testing.T) {
	for n := range 12 {
		target := &model.Target{}
		names := []model.Name{{Name: "api.a.example.com", Target: target}, {Name: "ns.dns.a.example.com", Target: target}}
		want := map[uint16]int{}
		for i := range n {
			address, qtype := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), dns.TypeA
			if i%3 == 0 {
				address, qtype = netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}), dns.TypeAAAA
			}
			want[qtype]++
			target.Addresses = append(target.Addresses, address)
		}
		tree := New(&model.View{Zones: []model.Zone{{Origin: "a.example.com", Domain: "a.example.com"}}, Names: names}, TTLs{ControlPlane: 30}, 1)
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			for range 2 {
				m, _ := query(t, tree, "api.a.example.com.", qtype)
				if len(m.Answer) != want[qtype] {
					t.Fatalf("%d addresses: %d of type %s, want %d", n, len(m.Answer), dns.TypeToString[qtype], want[qtype])
				}
				modify(m)
			}
		}
		if m, _ := query(t, tree, "a.example.com.", dns.TypeNS); len(m.Extra) != n {
			t.Fatalf("%d records of glue, want %d", len(m.Extra), n)
		}
	}
}

func TestRecordsAreCopies(t *testing.T) {
	tree := treeOf(t, nested)
	want, _ := query(t, tree, "api.a.example.com.", dns.TypeA)
	before := lines(want)

	m, _ := query(t, tree, "api.a.example.com.", dns.TypeA)
	for _, rr := range m.Answer {
		a, ok := rr.(*dns.A)
		if !ok {
			t.Fatalf("%s is not an A record", rr)
		}
		a.A[0], a.Hdr.Ttl, a.Hdr.Name = 203, 1, "modified."
	}
	after, _ := query(t, tree, "api.a.example.com.", dns.TypeA)
	if diff := cmp.Diff(before, lines(after)); diff != "" {
		t.Errorf("a modification of a reply changed the tree:\n%s", diff)
	}
}

func TestAnswersAllocateOnce(t *testing.T) {
	tree := treeOf(t, nested)
	for _, tc := range []struct {
		name, qname string
		qtype       uint16
	}{
		{"lower case", "x.y.z.a.example.com.", dns.TypeA},
		{"mixed case", "X.y.z.a.example.com.", dns.TypeA},
		{"one address of each family", "ns.dns.a.example.com.", dns.TypeAAAA},
		{"another type", "X.y.z.a.example.com.", dns.TypeTXT},
		{"unknown name", "Nope.a.example.com.", dns.TypeA},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node, exact := tree.Lookup(tc.qname)
			m := new(dns.Msg)
			n := testing.AllocsPerRun(100, func() {
				*m = dns.Msg{}
				if exact {
					node.Answer(m, tc.qname, tc.qtype)
				} else {
					node.Deny(m, tc.qtype)
				}
			})
			if n != 1 { // slice and record are allocated together
				t.Errorf("%v allocations, want 1", n)
			}
		})
	}
}

func TestRepliesPack(t *testing.T) {
	tree := treeOf(t, nested)
	for _, qname := range []string{"api.a.example.com.", "A.Example.com.", "nope.a.example.com.", strings.Repeat(`\255`, 63) + ".a.example.com."} {
		for qtype := range dns.TypeToString {
			m, _ := query(t, tree, qname, qtype)
			if _, err := m.Pack(); err != nil {
				t.Errorf("%s %s: %v", qname, dns.TypeToString[qtype], err)
			}
		}
	}
}
