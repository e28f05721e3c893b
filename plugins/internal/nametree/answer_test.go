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
	"github.com/densityops/oooi/test/golden"
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
			list = append(list, section.name+": "+strings.ReplaceAll(rr.String(), "\t", " "))
		}
	}
	return list
}

func TestAnswer(t *testing.T) {
	tree := treeOf(t, nested)
	golden.Transcript(t, "testdata/answers.txt", func(line string) []string {
		qname, qtype, _ := strings.Cut(line, " ")
		m, kind := query(t, tree, qname, dns.StringToType[qtype])
		output := lines(m)
		output[0] = kind.String() + ", " + output[0]
		return output
	})
}

// TestEveryType queries every type. A type that a name does not have is NODATA or NXDOMAIN with the SOA of the
// zone, and is never passed to an upstream. All replies can be packed.
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
		{"unknown name of escaped bytes", strings.Repeat(`\255`, 63) + ".a.example.com.", NXDomain, nil},
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
				if _, err := m.Pack(); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			}
		})
	}
}

func TestTTLsAndSerial(t *testing.T) {
	const serial = 4294967295
	for _, tc := range []struct{ ttl, negative uint32 }{{0, 0}, {3, 3}, {5, 5}, {30, 5}, {3600, 5}} {
		t.Run(fmt.Sprint(tc.ttl), func(t *testing.T) {
			tree := New(viewOf(t, nested), TTLs{ControlPlane: tc.ttl}, serial)
			for _, q := range questions {
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
				for _, rr := range slices.Concat(m.Answer, m.Ns) {
					if soa, ok := rr.(*dns.SOA); ok && soa.Serial != serial {
						t.Errorf("%s: the serial is not %d", rr, uint32(serial))
					}
				}
			}
		})
	}
}

// questions have replies of every kind with records.
var questions = []dns.Question{
	{Name: "api.a.example.com.", Qtype: dns.TypeA}, {Name: "API.a.example.com.", Qtype: dns.TypeAAAA},
	{Name: "a.example.com.", Qtype: dns.TypeSOA}, {Name: "a.example.com.", Qtype: dns.TypeNS},
	{Name: "api.a.example.com.", Qtype: dns.TypeTXT}, {Name: "nope.a.example.com.", Qtype: dns.TypeA},
}

// modify changes a reply as plugins in front of ours may: it changes addresses, appends to the sections and truncates them.
func modify(m *dns.Msg) {
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			a.A[0], a.Hdr.Ttl, a.Hdr.Name = 203, 1, "modified."
		}
	}
	for _, section := range []*[]dns.RR{&m.Answer, &m.Ns, &m.Extra} {
		*section = append(*section, &dns.TXT{Hdr: dns.RR_Header{Name: "modified.", Rrtype: dns.TypeTXT}})
		*section = append((*section)[:0:len(*section)-1], *section...)
	}
	m.Rcode, m.Authoritative = dns.RcodeServerFailure, false
}

// TestRepliesAreIndependent modifies one reply and compares others with the original.
func TestRepliesAreIndependent(t *testing.T) {
	tree := treeOf(t, nested)
	for _, q := range questions {
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
