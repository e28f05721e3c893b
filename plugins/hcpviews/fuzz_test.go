package hcpviews

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/plugins/internal/viewstest"
	"github.com/densityops/oooi/test/lab"
)

// FuzzCorefile checks the configuration of all blocks that parse accepts.
func FuzzCorefile(f *testing.F) {
	for _, seed := range []string{
		"hcpviews",
		"hcpviews example.com 10.0.0.0/8 {\n}",
		"hcpviews {\n kubeconfig /k prod\n snapshot s\n}",
		"hcpviews {\n manifests m\n ttl 60\n fallthrough example.com\n}",
		"hcpviews {\n infra a/b c/d\n hostedcluster e/f\n}",
		"hcpviews {\n view vlan 192.0.2.0/24 2001:db8::/64\n view pod 10.0.0.1\n}",
		"hcpviews {\n hostedcluster a/b\n view lab\n answer lab 192.0.2.1 2001:db8::1\n}",
		"hcpviews {\n view pod\n answer pod service a/b\n}",
		"hcpviews {\n view lab { }\n}",
		"hcpviews {\n view vlan ::ffff:192.0.2.0/120\n}",
		"hcpviews \\0\\",
		"hcpviews \"a b\" {\n ttl \"\n\"\n}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, block string) {
		p, err := parse(viewstest.Controller(block))
		if err != nil {
			return
		}
		for _, zone := range slices.Concat(p.Zones, p.Fall.Zones) {
			if !dns.IsFqdn(zone) || zone != strings.ToLower(zone) {
				t.Errorf("zone %q is not in lower case and fully qualified", zone)
			}
		}
		if p.TTL > 3600 {
			t.Errorf("TTL %d", p.TTL)
		}
		for _, view := range p.Config.Views {
			for _, cidr := range view.CIDRs {
				if !cidr.IsValid() || cidr != cidr.Masked() || cidr.Addr().Is4In6() {
					t.Errorf("view %s: %s matches no client", view.Name, cidr)
				}
			}
		}
		for name, answer := range p.Config.Answers {
			if len(answer.Addresses) == 0 && answer.Service == "" {
				t.Errorf("the answer of view %s is empty", name)
			}
		}
		if p.Config.Source.String() == "" {
			t.Error("the source has no name")
		}
	})
}

// FuzzServeDNS sends queries from clients of every kind.
func FuzzServeDNS(f *testing.F) {
	for _, qname := range []string{
		"api.blue.example.com.", "aPi.Blue.example.com.", "blue.example.com.", "apps.blue.example.com.", "shop.apps.blue.example.com.",
		"nope.blue.example.com.", "console-openshift-console.blue.example.com.", "ns.dns.green.example.com.", "api.blue.example.net.",
		"www.example.org.", ".", `a\.b.blue.example.com.`, `\000\255.blue.example.com.`, "x-y._tcp.api.green.example.com.",
	} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSOA, dns.TypeNS, dns.TypeANY, dns.TypeAXFR, dns.TypeHTTPS, dns.TypeDS} {
			m := new(dns.Msg).SetQuestion(qname, qtype)
			if qtype == dns.TypeHTTPS {
				m.SetEdns0(1232, true)
			}
			addSeed(f, m)
		}
	}
	addSeed(f, new(dns.Msg).SetNotify("blue.example.com."))
	addSeed(f, new(dns.Msg).SetUpdate("blue.example.com."))
	chaos := new(dns.Msg).SetQuestion("version.bind.", dns.TypeTXT)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	addSeed(f, chaos)

	h := start(f, "hcpviews {\n manifests testdata/manifests\n fallthrough green.example.com\n}")
	passed := false
	h.Next = plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		passed = true
		return dns.RcodeSuccess, nil
	})
	valid := new(dns.Msg).SetQuestion("api.blue.example.com.", dns.TypeA)
	f.Fuzz(func(t *testing.T, query []byte) {
		m := new(dns.Msg)
		if err := m.Unpack(query); err != nil || len(m.Question) != 1 {
			return
		}
		for _, client := range []string{blueClient, greenClient, podClient, "::ffff:" + blueClient, "2001:db8:10::77", "none"} {
			passed = false
			rec := dnstest.NewRecorder(&test.ResponseWriter{RemoteIP: client})
			if _, err := h.ServeDNS(t.Context(), rec, m); err != nil {
				t.Fatal(err)
			}
			switch {
			case passed == (rec.Msg != nil):
				t.Fatalf("%s: passed on: %t; replied: %t", client, passed, rec.Msg != nil)
			case rec.Msg != nil:
				checkReply(t, m, rec.Msg)
			}
		}
		rec := dnstest.NewRecorder(&test.ResponseWriter{RemoteIP: blueClient})
		if _, err := h.ServeDNS(t.Context(), rec, valid); err != nil {
			t.Fatal(err)
		}
		if len(rec.Msg.Answer) != 1 || rec.Msg.Answer[0].String() != "api.blue.example.com.\t30\tIN\tA\t192.0.2.3" {
			t.Errorf("the answer to a valid query has changed:\n%s", rec.Msg)
		}
	})
}

func addSeed(f *testing.F, m *dns.Msg) {
	f.Helper()
	packed, err := m.Pack()
	lab.Must(f, err)
	f.Add(packed)
}

// checkReply checks the rules that all of our replies follow.
func checkReply(t *testing.T, query, reply *dns.Msg) {
	t.Helper()
	q := query.Question[0]
	if reply.Id != query.Id || !reply.Response || len(reply.Question) != 1 || reply.Question[0] != q {
		t.Errorf("the reply does not match the query:\n%s", reply)
	}
	packed, err := reply.Pack()
	if err != nil {
		t.Fatalf("%v\n%s", err, reply)
	}
	if err := new(dns.Msg).Unpack(packed); err != nil {
		t.Errorf("the reply cannot be unpacked: %v\n%s", err, reply)
	}
	for _, rr := range reply.Answer {
		if rr.Header().Name != q.Name {
			t.Errorf("the answer has the name %s", rr.Header().Name)
		}
		if rr.Header().Rrtype != q.Qtype && q.Qtype != dns.TypeANY {
			t.Errorf("the answer has the type %s", dns.TypeToString[rr.Header().Rrtype])
		}
	}
	refused := reply.Rcode == dns.RcodeRefused
	if !refused && reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		t.Errorf("rcode %s", dns.RcodeToString[reply.Rcode])
	}
	if reply.Authoritative == refused {
		t.Errorf("AA is %t:\n%s", reply.Authoritative, reply)
	}
	if negative := len(reply.Answer) == 0 && !refused; negative != (len(reply.Ns) == 1) {
		t.Errorf("%d records of authority:\n%s", len(reply.Ns), reply)
	}
	for _, rr := range reply.Ns {
		if rr.Header().Rrtype != dns.TypeSOA || !dns.IsSubDomain(rr.Header().Name, q.Name) {
			t.Errorf("the authority section does not match %s: %s", q.Name, rr)
		}
	}
}
