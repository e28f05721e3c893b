package nametree

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/golden"
)

// nested is the view of most tests: two clusters, one with its domain inside the other's, and a hostname outside of
// both.
const nested = `
	zone a.example.com
	zone b.c.a.example.com
	zone api.example.net of a.example.com
	name api.a.example.com 192.0.2.3 192.0.2.4 2001:db8::3
	name below.api.a.example.com 192.0.2.3
	name x.y.z.a.example.com 192.0.2.3
	name oauth.apps.a.example.com 192.0.2.3
	name later.a.example.com
	name api.b.c.a.example.com 192.0.2.5
	name api.example.net 192.0.2.3
	name ns.dns.a.example.com 192.0.2.2 2001:db8::2
	name ns.dns.b.c.a.example.com
	apps apps.a.example.com
	app console.a.example.com`

// viewOf parses a view with one item a line: "zone ORIGIN [of DOMAIN]", "name NAME ADDRESS ...", "apps DOMAIN" or
// "app NAME". The last two are served if followed by "at ADDRESS ...", with or without an address.
func viewOf(tb testing.TB, text string) *model.View {
	tb.Helper()
	v := &model.View{}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		words := strings.Fields(line)
		switch words[0] {
		case "zone":
			v.Zones = append(v.Zones, model.Zone{Origin: words[1], Domain: words[len(words)-1]})
		case "name":
			n := model.Name{Name: words[1], Target: &model.Target{}}
			for _, address := range words[2:] {
				n.Addresses = append(n.Addresses, netip.MustParseAddr(address))
			}
			v.Names = append(v.Names, n)
		case "apps", "app":
			a := model.App{Name: words[1], Domain: "a.example.com", Subtree: words[0] == "apps"}
			if len(words) > 2 {
				a.Served = words[2] == "at"
				for _, address := range words[3:] {
					a.Addresses = append(a.Addresses, netip.MustParseAddr(address))
				}
			}
			v.Apps = append(v.Apps, a)
		default:
			tb.Fatalf("invalid line %q", line)
		}
	}
	return v
}

func treeOf(tb testing.TB, text string) *Tree {
	tb.Helper()
	return New(viewOf(tb, text), TTLs{ControlPlane: 30}, 1)
}

// lookup describes the result of a lookup: "api.a.example.com." for a name that exists, "below api.a.example.com."
// for one that does not.
func lookup(t *Tree, qname string) string {
	node, exact := t.Lookup(qname)
	if node == nil {
		return "nothing"
	}
	for name, n := range t.all() {
		if n == node && exact {
			return name + "."
		} else if n == node {
			return "below " + name + "."
		}
	}
	return "a node outside of the tree"
}

// TestLookup runs the transcript testdata/lookups.txt: "lookup QNAME" in the tree of nested, in any case, and "within QNAME ZONE".
func TestLookup(t *testing.T) {
	tree := treeOf(t, nested)
	golden.Transcript(t, "testdata/lookups.txt", func(line string) []string {
		command, qname, _ := strings.Cut(line, " ")
		if command == "within" {
			qname, zone, _ := strings.Cut(qname, " ")
			return []string{strconv.FormatBool(Within(qname, zone))}
		}
		got := lookup(tree, qname)
		if upper := lookup(tree, strings.ToUpper(qname)); upper != got {
			t.Errorf("%s in capitals is %s, and otherwise %s", qname, upper, got)
		}
		if node, _ := tree.Lookup(qname); node != nil {
			got += fmt.Sprintf(" in zone %s, apex %t", node.Zone.Origin, node.Apex)
		}
		return []string{got}
	})
}

func TestLongNames(t *testing.T) {
	label := strings.Repeat("x", 63)
	long := strings.Join([]string{label, label, label, strings.Repeat("y", 63-len(".a.example.com"))}, ".") + ".a.example.com"
	if len(long) != 255 {
		t.Fatalf("the name has %d bytes", len(long))
	}
	long = long[2:] // 253 bytes, the maximum
	tree := treeOf(t, fmt.Sprintf("zone a.example.com\nname %s 192.0.2.3", long))
	escaped := strings.Repeat(strings.Repeat(`\255`, 63)+".", 3)
	for _, tc := range []struct{ name, qname, want string }{
		{"the longest name", dns.Fqdn(long), dns.Fqdn(long)},
		{"the longest name in capitals", strings.ToUpper(dns.Fqdn(long)), dns.Fqdn(long)},
		{"its parent", dns.Fqdn(long[strings.Index(long, ".")+1:]), dns.Fqdn(long[strings.Index(long, ".")+1:])},
		{"every byte escaped", escaped + "a.example.com.", "below a.example.com."},
		{"every byte escaped, below a name", escaped + "Y" + long[strings.Index(long, "y")+1:] + ".", "below " + long[strings.Index(long, "y"):] + "."},
		{"every byte escaped, in no zone", escaped + "example.com.", "nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := lookup(tree, tc.qname); got != tc.want {
				t.Errorf("%d bytes: got %s, want %s", len(tc.qname), got, tc.want)
			}
		})
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	tree := treeOf(t, nested)
	for name, qname := range map[string]string{
		"name":           "api.a.example.com.",
		"mixed case":     "aPi.A.eXaMpLe.CoM.",
		"unknown name":   "nope.a.example.com.",
		"in no zone":     "www.example.org.",
		"escaped":        `\000\..a.example.com.`,
		"root":           ".",
		"256 bytes long": strings.Repeat("x.", (256-len("a.example.com."))/2) + "a.example.com.",
	} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, func() { tree.Lookup(qname); _ = Within(qname, "example.com.") }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func TestZoneOrderDoesNotMatter(t *testing.T) {
	// Names between a zone and its enclosing zone exist in any order of the zones.
	for _, text := range []string{
		"zone a.example.com\nzone b.c.a.example.com\nzone d.b.c.a.example.com",
		"zone d.b.c.a.example.com\nzone b.c.a.example.com\nzone a.example.com",
	} {
		tree := treeOf(t, text)
		for qname, zone := range map[string]string{
			"c.a.example.com.": "a.example.com.", "b.c.a.example.com.": "b.c.a.example.com.", "d.b.c.a.example.com.": "d.b.c.a.example.com.",
		} {
			if node, exact := tree.Lookup(qname); !exact || node.Zone.Origin != zone {
				t.Errorf("%s is %s, want it to exist in %s", qname, lookup(tree, qname), zone)
			}
		}
	}
}

// FuzzWithin compares Within with dns.IsSubDomain.
func FuzzWithin(f *testing.F) {
	f.Add([]byte("\x03api\x01a\x07example\x03com\x00"), []byte("\x01A\x07exAmple\x03com\x00"))
	f.Add([]byte("\x03x.a\x03com\x00"), []byte("\x01a\x03com\x00"))
	f.Add([]byte("\x02x\\\x01a\x00"), []byte("\x01a\x00"))
	f.Add([]byte("\x00"), []byte("\x00"))
	f.Fuzz(func(t *testing.T, child, parent []byte) {
		qname, _, err := dns.UnpackDomainName(child, 0)
		if err != nil {
			return
		}
		zone, _, err := dns.UnpackDomainName(parent, 0)
		if err != nil {
			return
		}
		zone = dns.CanonicalName(zone)
		if got, want := Within(qname, zone), dns.IsSubDomain(zone, qname); got != want {
			t.Errorf("%s within %s: %t, want %t", qname, zone, got, want)
		}
	})
}
