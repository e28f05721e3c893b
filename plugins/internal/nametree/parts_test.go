package nametree

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// bothParts is a view with an apps domain inside the cluster domain, one outside of it, and control-plane names in
// both.
const bothParts = `
	zone a.example.com
	zone oauth.apps.example.net of a.example.com
	name api.a.example.com 192.0.2.3
	name oauth.apps.a.example.com 192.0.2.3
	name x.deep.apps.a.example.com 192.0.2.3
	name oauth.apps.example.net 192.0.2.3
	name ns.dns.a.example.com 192.0.2.2
	apps apps.a.example.com at 192.0.2.100 2001:db8::100
	apps apps.example.net at 192.0.2.100
	app console.a.example.com at 192.0.2.100
	app api.a.example.com at 192.0.2.100`

// answerFor returns the answer of the plugin for one part to a query for A.
func answerFor(t *Tree, part Part, qname string) string {
	n, exact := t.Lookup(qname)
	node, deny := n.Answers(part, exact)
	m := new(dns.Msg)
	switch {
	case node == nil:
		return "passed on"
	case deny:
		node.Deny(m, dns.TypeA)
		return "NXDOMAIN in " + m.Ns[0].Header().Name
	case node.Answer(m, qname, dns.TypeA) == NoData:
		return "NODATA in " + m.Ns[0].Header().Name
	default:
		return strings.TrimPrefix(m.Answer[0].String(), m.Answer[0].Header().String())
	}
}

func TestPartsShareATree(t *testing.T) {
	const zone, passed = "a.example.com.", "passed on"
	for _, tc := range []struct {
		name, qname string
		// answers of each plugin, if both are configured and if it is the only one
		control, apps, controlAlone, appsAlone string
	}{
		{"control-plane name", "api.a.example.com.", "192.0.2.3", passed, "192.0.2.3", passed},
		{"control-plane name in the apps domain", "oauth.apps.a.example.com.", "192.0.2.3", passed, "192.0.2.3", passed},
		{"name below it", "x.oauth.apps.a.example.com.", "NXDOMAIN in " + zone, passed, "NXDOMAIN in " + zone, passed},
		{"unknown name of the cluster domain", "nope.a.example.com.", "NXDOMAIN in " + zone, passed, "NXDOMAIN in " + zone, passed},
		{"cluster domain", "a.example.com.", "NODATA in " + zone, passed, "NODATA in " + zone, passed},

		{"apps domain", "apps.a.example.com.", "NODATA in " + zone, passed, "NODATA in " + zone, "NODATA in apps.a.example.com."},
		{"application", "shop.apps.a.example.com.", passed, "192.0.2.100", passed, "192.0.2.100"},
		{"application two labels deep", "a.shop.apps.a.example.com.", passed, "192.0.2.100", passed, "192.0.2.100"},
		{"the wildcard itself", "*.apps.a.example.com.", passed, "192.0.2.100", passed, "192.0.2.100"},
		{"below the wildcard itself", "x.*.apps.a.example.com.", passed, "NXDOMAIN in " + zone, passed, "NXDOMAIN in apps.a.example.com."},
		{"application in capitals", "SHOP.Apps.a.example.com.", passed, "192.0.2.100", passed, "192.0.2.100"},
		{"label with an escaped dot", `a\.b.apps.a.example.com.`, passed, "192.0.2.100", passed, "192.0.2.100"},
		{"parent of a control-plane name in the apps domain", "deep.apps.a.example.com.", "NODATA in " + zone, passed, "NODATA in " + zone, "NODATA in apps.a.example.com."},
		{"another child of it, which the wildcard does not match", "y.deep.apps.a.example.com.", "NXDOMAIN in " + zone, passed, "NXDOMAIN in " + zone, "NXDOMAIN in apps.a.example.com."},

		{"console outside of the apps domain", "console.a.example.com.", passed, "192.0.2.100", passed, "192.0.2.100"},
		{"name below it", "x.console.a.example.com.", passed, "NXDOMAIN in " + zone, passed, "NXDOMAIN in console.a.example.com."},

		{"apps domain outside of the cluster domain", "apps.example.net.", passed, "NODATA in apps.example.net.", passed, "NODATA in apps.example.net."},
		{"application in it", "shop.apps.example.net.", passed, "192.0.2.100", passed, "192.0.2.100"},
		{"control-plane name in it", "oauth.apps.example.net.", "192.0.2.3", passed, "192.0.2.3", passed},
		{"name below that", "x.oauth.apps.example.net.", "NXDOMAIN in oauth.apps.example.net.", passed, "NXDOMAIN in oauth.apps.example.net.", passed},
		{"parent of that apps domain", "example.net.", passed, passed, passed, passed},
		{"name of no hosted cluster", "www.example.org.", passed, passed, passed, passed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, plugins := range []struct {
				name          string
				ttls          TTLs
				control, apps string
			}{
				{"both", TTLs{ControlPlane: 30, Apps: 30}, tc.control, tc.apps},
				{"hcpviews only", TTLs{ControlPlane: 30}, tc.controlAlone, passed},
				{"hcpapps only", TTLs{Apps: 30}, passed, tc.appsAlone},
			} {
				tree := New(viewOf(t, bothParts), plugins.ttls, 1)
				if got := answerFor(tree, ControlPlane, tc.qname); got != plugins.control {
					t.Errorf("%s: hcpviews answers %q, want %q", plugins.name, got, plugins.control)
				}
				if got := answerFor(tree, Apps, tc.qname); got != plugins.apps {
					t.Errorf("%s: hcpapps answers %q, want %q", plugins.name, got, plugins.apps)
				}
			}
		})
	}
}

func TestOnlyOnePartAnswersAName(t *testing.T) {
	tree := New(viewOf(t, bothParts), TTLs{ControlPlane: 30, Apps: 30}, 1)
	for name := range tree.all() {
		name += "."
		for _, qname := range []string{name, "x." + name, "y.x." + name} {
			control, apps := answerFor(tree, ControlPlane, qname), answerFor(tree, Apps, qname)
			if (control == "passed on") == (apps == "passed on") {
				t.Errorf("%s: hcpviews answers %q, hcpapps %q", qname, control, apps)
			}
		}
	}
}

func TestApplicationsWithoutAnAddress(t *testing.T) {
	for _, tc := range []struct{ name, facts, qname, want string }{
		{"not known yet", "apps apps.a.example.com at", "shop.apps.a.example.com.", "NODATA in a.example.com."},
		{"not served", "apps apps.a.example.com", "shop.apps.a.example.com.", "passed on"},
		{"not served, outside of the apps domain", "app console.a.example.com", "console.a.example.com.", "passed on"},
		{"not served, in no zone", "app console.example.org", "console.example.org.", "passed on"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tree := New(viewOf(t, "zone a.example.com\n"+tc.facts), TTLs{ControlPlane: 30, Apps: 30}, 1)
			if got := answerFor(tree, Apps, tc.qname); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if got := answerFor(tree, ControlPlane, tc.qname); got != "passed on" {
				t.Errorf("hcpviews answers %q", got)
			}
		})
	}
}

// TestNameServersResolve queries the name servers of each plugin's zones, as a resolver does that primes a stub
// zone.
func TestNameServersResolve(t *testing.T) {
	const known, unknown = "ns 192.0.2.2 2001:db8::2", "ns"
	own := []netip.Addr{netip.MustParseAddr("192.0.2.9")}
	for _, tc := range []struct {
		name, servers string
		ttls          TTLs
		own           []netip.Addr
		origin, want  string
	}{
		{"hcpapps only", known, TTLs{Apps: 30}, nil, "apps.a.example.com.", "192.0.2.2"},
		{"hcpapps only, a name outside of the apps domain", known, TTLs{Apps: 30}, nil, "console.a.example.com.", "192.0.2.2"},
		{"an apps domain outside of the cluster domain", known, TTLs{ControlPlane: 30, Apps: 30}, nil, "apps.example.net.", "192.0.2.2"},
		{"no address is known", unknown, TTLs{Apps: 30}, nil, "apps.a.example.com.", "NODATA in apps.a.example.com."},
		{"the server's own address", unknown, TTLs{Apps: 30}, own, "apps.a.example.com.", "192.0.2.9"},
		{"an Infra's address before the server's own", known, TTLs{Apps: 30}, own, "apps.a.example.com.", "192.0.2.2"},
		{"hcpviews, the server's own address", unknown, TTLs{ControlPlane: 30}, own, "a.example.com.", "192.0.2.9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			facts := bothParts
			if tc.servers == unknown {
				facts = strings.Replace(bothParts, "ns.dns.a.example.com 192.0.2.2", "ns.dns.a.example.com", 1)
			}
			view := viewOf(t, facts)
			for i := range view.Apps {
				if tc.servers == known {
					view.Apps[i].NameServers = []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")}
				}
			}
			tree := New(view, tc.ttls, 1, tc.own...)
			part := Apps
			if tc.ttls[Apps] == 0 {
				part = ControlPlane
			}
			apex, exact := tree.Lookup(tc.origin)
			if !exact || !apex.Apex {
				t.Fatalf("%s is not a zone", tc.origin)
			}
			m := new(dns.Msg)
			apex.Answer(m, tc.origin, dns.TypeNS)
			ns, ok := m.Answer[0].(*dns.NS)
			if !ok {
				t.Fatal(m)
			}
			if got := answerFor(tree, part, ns.Ns); got != tc.want {
				t.Errorf("%s: got %q, want %q", ns.Ns, got, tc.want)
			}
			if resolves := !strings.HasPrefix(tc.want, "NODATA"); resolves != (len(m.Extra) > 0) {
				t.Errorf("glue is %v", m.Extra)
			}
		})
	}
}

func TestEachPartHasItsTTL(t *testing.T) {
	tree := New(viewOf(t, bothParts), TTLs{ControlPlane: 7, Apps: 9}, 1)
	for qname, want := range map[string]uint32{"api.a.example.com.": 7, "console.a.example.com.": 9, "shop.apps.a.example.com.": 9, "shop.apps.example.net.": 9} {
		n, exact := tree.Lookup(qname)
		for _, part := range []Part{ControlPlane, Apps} {
			node, _ := n.Answers(part, exact)
			if node == nil {
				continue
			}
			m := new(dns.Msg)
			if node.Answer(m, qname, dns.TypeA); m.Answer[0].Header().Ttl != want {
				t.Errorf("%s has TTL %d, want %d", qname, m.Answer[0].Header().Ttl, want)
			}
		}
	}
}

func TestWildcardAnswersHaveTheQueriedName(t *testing.T) {
	tree := New(viewOf(t, bothParts), TTLs{Apps: 30}, 1)
	n, exact := tree.Lookup("Shop.apps.a.example.com.")
	node, _ := n.Answers(Apps, exact)
	for qtype, want := range map[uint16]string{
		dns.TypeA:    "Shop.apps.a.example.com.\t30\tIN\tA\t192.0.2.100",
		dns.TypeAAAA: "Shop.apps.a.example.com.\t30\tIN\tAAAA\t2001:db8::100",
	} {
		m := new(dns.Msg)
		if node.Answer(m, "Shop.apps.a.example.com.", qtype); len(m.Answer) != 1 || m.Answer[0].String() != want {
			t.Errorf("got %v, want %s", m.Answer, want)
		}
		modify(m)
		again := new(dns.Msg)
		if node.Answer(again, "other.apps.a.example.com.", qtype); again.Answer[0].Header().Name != "other.apps.a.example.com." {
			t.Errorf("the next query is answered with %v", again.Answer)
		}
	}
}
