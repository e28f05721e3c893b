package nametree

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/golden"
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
		address := strings.TrimPrefix(m.Answer[0].String(), m.Answer[0].Header().String())
		return fmt.Sprintf("%s with TTL %d", address, m.Answer[0].Header().Ttl)
	}
}

// TestPartsShareATree runs the transcript testdata/parts.txt. The output is of both plugins, and of each as the only one. The commands are:
//
//	both                the view is bothParts
//	facts FACT; FACT... the view has these facts
//	servers ADDRESS...  the name servers of all apps domains
//	own ADDRESS         the address of the DNS server
//	query QNAME         the answers of each plugin to a query for A
//	servers-of ORIGIN   the same for the name server of a zone, and the number of records of glue
func TestPartsShareATree(t *testing.T) {
	var view *model.View
	var own []netip.Addr
	golden.Transcript(t, "testdata/parts.txt", func(line string) (output []string) {
		command, argument, _ := strings.Cut(line, " ")
		switch command {
		case "both":
			view, own = viewOf(t, bothParts), nil
		case "facts":
			view = viewOf(t, strings.ReplaceAll(argument, "; ", "\n"))
		case "servers":
			for i := range view.Apps {
				for text := range strings.FieldsSeq(argument) {
					view.Apps[i].NameServers = append(view.Apps[i].NameServers, netip.MustParseAddr(text))
				}
			}
		case "own":
			own = []netip.Addr{netip.MustParseAddr(argument)}
		case "query", "servers-of":
			for _, plugins := range []struct {
				name string
				ttls TTLs
			}{{"both", TTLs{ControlPlane: 7, Apps: 9}}, {"hcpviews only", TTLs{ControlPlane: 7}}, {"hcpapps only", TTLs{Apps: 9}}} {
				tree, qname, glue := New(view, plugins.ttls, 1, own...), argument, ""
				if command == "servers-of" {
					apex, exact := tree.Lookup(argument)
					if !exact || !apex.Apex {
						output = append(output, plugins.name+": no zone")
						continue
					}
					m := new(dns.Msg)
					apex.Answer(m, argument, dns.TypeNS)
					qname, glue = strings.Fields(m.Answer[0].String())[4], fmt.Sprintf("; %d records of glue", len(m.Extra))
				}
				output = append(output, fmt.Sprintf("%s: hcpviews %s; hcpapps %s%s", plugins.name, answerFor(tree, ControlPlane, qname), answerFor(tree, Apps, qname), glue))
			}
		default:
			t.Fatalf("unknown command %s", line)
		}
		return output
	})
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
