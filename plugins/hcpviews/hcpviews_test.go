package hcpviews

import (
	"testing"

	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/plugins/internal/views"
	"github.com/densityops/oooi/plugins/internal/viewstest"
)

// Clients of the manifests in testdata.
const (
	blueClient  = "192.0.2.77"
	greenClient = "198.51.100.77"
	podClient   = "10.128.0.77"
	blueSOA     = "blue.example.com. 5 IN SOA ns.dns.blue.example.com. hostmaster.blue.example.com. 1 7200 1800 86400 5"
)

func start(tb testing.TB, corefile string) *HCPViews {
	tb.Helper()
	h, err := parse(viewstest.Controller(corefile))
	if err != nil {
		tb.Fatal(err)
	}
	viewstest.Start(tb, &h.Handler)
	return h
}

// unsynced returns a handler before its first snapshot.
func unsynced() *HCPViews {
	return &HCPViews{views.Handler{
		Zones: []string{"example.com."}, Source: &views.Source{}, Next: viewstest.Upstream(), Requests: requests,
	}}
}

type viewCase struct {
	name   string
	client string
	test.Case
}

func check(t *testing.T, h *HCPViews, cases []viewCase) {
	t.Helper()
	for _, tc := range cases {
		viewstest.Ask(t, h, tc.name, tc.client, tc.Case)
	}
}

func TestClientsSeeTheirView(t *testing.T) {
	h := start(t, "hcpviews {\n manifests testdata/manifests\n}")
	check(t, h, []viewCase{
		{"clients on the VLAN get the proxy's address", blueClient, test.Case{
			Qname: "api.blue.example.com.", Qtype: dns.TypeA,
			Answer: []dns.RR{test.A("api.blue.example.com. 30 IN A 192.0.2.3")},
		}},
		{"IPv6 clients on the VLAN", "2001:db8:10::77", test.Case{
			Qname: "api.blue.example.com.", Qtype: dns.TypeAAAA,
			Answer: []dns.RR{test.AAAA("api.blue.example.com. 30 IN AAAA 2001:db8:10::3")},
		}},
		{"an IPv4-mapped address of a client", "::ffff:192.0.2.77", test.Case{
			Qname: "api.blue.example.com.", Qtype: dns.TypeA,
			Answer: []dns.RR{test.A("api.blue.example.com. 30 IN A 192.0.2.3")},
		}},
		{"pods get the proxy's Service", podClient, test.Case{
			Qname: "api.blue.example.com.", Qtype: dns.TypeA,
			Answer: []dns.RR{test.A("api.blue.example.com. 30 IN A 10.96.0.10")},
		}},
		{"pods get its IPv6 address", podClient, test.Case{
			Qname: "api.blue.example.com.", Qtype: dns.TypeAAAA,
			Answer: []dns.RR{test.AAAA("api.blue.example.com. 30 IN AAAA fd00:96::10")},
		}},
		{"clients on another VLAN get its proxy", greenClient, test.Case{
			Qname: "api.green.example.com.", Qtype: dns.TypeA,
			Answer: []dns.RR{test.A("api.green.example.com. 30 IN A 198.51.100.3")},
		}},
		{"another cluster's name is passed on", greenClient, test.Case{
			Qname: "api.blue.example.com.", Qtype: dns.TypeA, Rcode: viewstest.Passed,
		}},
		{"another cluster's apex is passed on", greenClient, test.Case{
			Qname: "blue.example.com.", Qtype: dns.TypeSOA, Rcode: viewstest.Passed,
		}},
		{"a name without an address yet exists", podClient, test.Case{
			Qname: "api.green.example.com.", Qtype: dns.TypeA,
			Ns: []dns.RR{test.SOA("green.example.com. 5 IN SOA ns.dns.green.example.com. hostmaster.green.example.com. 1 7200 1800 86400 5")},
		}},
		{"a name of no hosted cluster is passed on", blueClient, test.Case{
			Qname: "www.example.net.", Qtype: dns.TypeA, Rcode: viewstest.Passed,
		}},
	})
}

func TestEveryControlPlaneNameIsServed(t *testing.T) {
	h := start(t, "hcpviews {\n manifests testdata/manifests\n}")
	var cases []viewCase
	for _, name := range []string{
		"api.blue.example.com.", "api-int.blue.example.com.", "oauth.blue.example.com.", "ignition.blue.example.com.",
		"ignition-server.blue.example.com.", "konnectivity.blue.example.com.", "konnectivity-server.blue.example.com.",
		"oauth-openshift.apps.blue.example.com.", "api.blue.example.net.", "ignition-server-clusters-blue.apps.mgmt.example.org.",
	} {
		cases = append(cases, viewCase{name, blueClient, test.Case{
			Qname: name, Qtype: dns.TypeA, Answer: []dns.RR{test.A(name + " 30 IN A 192.0.2.3")},
		}})
	}
	check(t, h, cases)
}

func TestProtocol(t *testing.T) {
	h := start(t, "hcpviews {\n manifests testdata/manifests\n}")
	soa := []dns.RR{test.SOA(blueSOA)}
	check(t, h, []viewCase{
		{"the answer has the query's spelling", blueClient, test.Case{
			Qname: "aPi.Blue.EXAMPLE.com.", Qtype: dns.TypeA,
			Answer: []dns.RR{test.A("aPi.Blue.EXAMPLE.com. 30 IN A 192.0.2.3")},
		}},
		{"an unknown name of the cluster's domain does not exist", blueClient, test.Case{
			Qname: "nope.blue.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError, Ns: soa,
		}},
		{"names below a control-plane name do not exist", blueClient, test.Case{
			Qname: "below.api.blue.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError, Ns: soa,
		}},
		{"the apex has a SOA", blueClient, test.Case{
			Qname: "blue.example.com.", Qtype: dns.TypeSOA,
			Answer: []dns.RR{test.SOA("blue.example.com. 30 IN SOA ns.dns.blue.example.com. hostmaster.blue.example.com. 1 7200 1800 86400 5")},
		}},
		{"the apex has a name server with glue", blueClient, test.Case{
			Qname: "blue.example.com.", Qtype: dns.TypeNS,
			Answer: []dns.RR{test.NS("blue.example.com. 30 IN NS ns.dns.blue.example.com.")},
			Extra:  []dns.RR{test.A("ns.dns.blue.example.com. 30 IN A 192.0.2.2")},
		}},
		{"pods get the name server's Service", podClient, test.Case{
			Qname: "ns.dns.blue.example.com.", Qtype: dns.TypeA,
			Answer: []dns.RR{test.A("ns.dns.blue.example.com. 30 IN A 10.96.0.11")},
		}},
		{"the apex has no address", blueClient, test.Case{Qname: "blue.example.com.", Qtype: dns.TypeA, Ns: soa}},
		{"the apex has no DS", blueClient, test.Case{Qname: "blue.example.com.", Qtype: dns.TypeDS, Ns: soa}},
		{"parents of names exist", blueClient, test.Case{Qname: "dns.blue.example.com.", Qtype: dns.TypeA, Ns: soa}},
		{"the apps domain exists", blueClient, test.Case{Qname: "apps.blue.example.com.", Qtype: dns.TypeA, Ns: soa}},
		{"applications are passed on", blueClient, test.Case{
			Qname: "shop.apps.blue.example.com.", Qtype: dns.TypeA, Rcode: viewstest.Passed,
		}},
		{"the console outside of the apps domain is passed on", blueClient, test.Case{
			Qname: "console-openshift-console.blue.example.com.", Qtype: dns.TypeA, Rcode: viewstest.Passed,
		}},
		{"names below a control-plane name in the apps domain do not exist", blueClient, test.Case{
			Qname: "below.oauth-openshift.apps.blue.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError, Ns: soa,
		}},
		{"HTTPS is NODATA", blueClient, test.Case{Qname: "api.blue.example.com.", Qtype: dns.TypeHTTPS, Ns: soa}},
		{"SVCB is NODATA", blueClient, test.Case{Qname: "api.blue.example.com.", Qtype: dns.TypeSVCB, Ns: soa}},
		{"TXT is NODATA", blueClient, test.Case{Qname: "api.blue.example.com.", Qtype: dns.TypeTXT, Ns: soa}},
		{"CAA is NODATA", blueClient, test.Case{Qname: "api.blue.example.com.", Qtype: dns.TypeCAA, Ns: soa}},
		{"ANY is answered minimally", blueClient, test.Case{
			Qname: "api.blue.example.com.", Qtype: dns.TypeANY,
			Answer: []dns.RR{test.HINFO(`api.blue.example.com. 5 IN HINFO "RFC8482" ""`)},
		}},
		{"zone transfers are refused", blueClient, test.Case{Qname: "blue.example.com.", Qtype: dns.TypeAXFR, Rcode: dns.RcodeRefused}},
		{"AAAA of an IPv4-only name is NODATA", greenClient, test.Case{
			Qname: "api.green.example.com.", Qtype: dns.TypeAAAA,
			Ns: []dns.RR{test.SOA("green.example.com. 5 IN SOA ns.dns.green.example.com. hostmaster.green.example.com. 1 7200 1800 86400 5")},
		}},
		{"a hostname outside of the cluster's domains is a zone of its own", blueClient, test.Case{
			Qname: "api.blue.example.net.", Qtype: dns.TypeTXT,
			Ns: []dns.RR{test.SOA("api.blue.example.net. 5 IN SOA ns.dns.blue.example.com. hostmaster.blue.example.com. 1 7200 1800 86400 5")},
		}},
		{"siblings of such a hostname are passed on", blueClient, test.Case{Qname: "www.blue.example.net.", Qtype: dns.TypeA, Rcode: viewstest.Passed}},
		{"the parent of such a hostname is passed on", blueClient, test.Case{Qname: "blue.example.net.", Qtype: dns.TypeA, Rcode: viewstest.Passed}},
		{"a suffix that does not begin at a label is passed on", blueClient, test.Case{Qname: "api.notblue.example.com.", Qtype: dns.TypeA, Rcode: viewstest.Passed}},
		{"an escaped dot does not end a label", blueClient, test.Case{Qname: `api\.blue.example.com.`, Qtype: dns.TypeA, Rcode: viewstest.Passed}},
		{"the root is passed on", blueClient, test.Case{Qname: ".", Qtype: dns.TypeNS, Rcode: viewstest.Passed}},
	})
	t.Run("another class is passed on", func(t *testing.T) {
		m := new(dns.Msg).SetQuestion("api.blue.example.com.", dns.TypeA)
		m.Question[0].Qclass = dns.ClassCHAOS
		expectRcode(t, h, m, viewstest.Passed)
	})
	t.Run("another opcode is passed on", func(t *testing.T) {
		m := new(dns.Msg).SetNotify("blue.example.com.")
		expectRcode(t, h, m, viewstest.Passed)
	})
}

func expectRcode(t *testing.T, h *HCPViews, m *dns.Msg, rcode int) {
	t.Helper()
	rec := dnstest.NewRecorder(&test.ResponseWriter{RemoteIP: blueClient})
	if _, err := h.ServeDNS(t.Context(), rec, m); err != nil {
		t.Fatal(err)
	}
	if rec.Rcode != rcode {
		t.Errorf("rcode is %s, want %s", dns.RcodeToString[rec.Rcode], dns.RcodeToString[rcode])
	}
}

func TestZonesOfTheBlockBoundWhatIsAnswered(t *testing.T) {
	h := start(t, "hcpviews blue.example.com {\n manifests testdata/manifests\n}")
	check(t, h, []viewCase{
		{"inside", blueClient, test.Case{
			Qname: "api.blue.example.com.", Qtype: dns.TypeA,
			Answer: []dns.RR{test.A("api.blue.example.com. 30 IN A 192.0.2.3")},
		}},
		{"outside", blueClient, test.Case{Qname: "api.blue.example.net.", Qtype: dns.TypeA, Rcode: viewstest.Passed}},
	})
}

func TestFallthrough(t *testing.T) {
	h := start(t, "hcpviews {\n manifests testdata/manifests\n fallthrough blue.example.com\n}")
	check(t, h, []viewCase{
		{"an unknown name falls through", blueClient, test.Case{Qname: "nope.blue.example.com.", Qtype: dns.TypeA, Rcode: viewstest.Passed}},
		{"another type of a known name does not", blueClient, test.Case{
			Qname: "api.blue.example.com.", Qtype: dns.TypeHTTPS, Ns: []dns.RR{test.SOA(blueSOA)},
		}},
		{"an unknown name of another zone does not", greenClient, test.Case{
			Qname: "nope.green.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError,
			Ns: []dns.RR{test.SOA("green.example.com. 5 IN SOA ns.dns.green.example.com. hostmaster.green.example.com. 1 7200 1800 86400 5")},
		}},
	})
}

func TestBlockViews(t *testing.T) {
	t.Run("vlan", func(t *testing.T) {
		h := start(t, "hcpviews {\n manifests testdata/manifests\n view vlan\n infra clusters/blue\n}")
		check(t, h, []viewCase{
			{"its own client", blueClient, test.Case{
				Qname: "api.blue.example.com.", Qtype: dns.TypeA,
				Answer: []dns.RR{test.A("api.blue.example.com. 30 IN A 192.0.2.3")},
			}},
			{"a source outside of the VLAN is refused, never treated as a pod", podClient, test.Case{
				Qname: "api.blue.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeRefused,
			}},
		})
	})
	t.Run("pod", func(t *testing.T) {
		h := start(t, "hcpviews {\n manifests testdata/manifests\n view pod\n infra clusters/blue\n}")
		check(t, h, []viewCase{
			{"every client is a pod, whatever its address", blueClient, test.Case{
				Qname: "api.blue.example.com.", Qtype: dns.TypeA,
				Answer: []dns.RR{test.A("api.blue.example.com. 30 IN A 10.96.0.10")},
			}},
			{"a cluster out of scope is passed on", blueClient, test.Case{
				Qname: "api.green.example.com.", Qtype: dns.TypeA, Rcode: viewstest.Passed,
			}},
		})
	})
	t.Run("with addresses of its own", func(t *testing.T) {
		h := start(t, `hcpviews {
			manifests testdata/manifests
			hostedcluster clusters/green
			view lab
			answer lab 203.0.113.9 2001:db8::9
			ttl 7
		}`)
		check(t, h, []viewCase{
			{"A", podClient, test.Case{
				Qname: "oauth.green.example.com.", Qtype: dns.TypeA,
				Answer: []dns.RR{test.A("oauth.green.example.com. 7 IN A 203.0.113.9")},
			}},
			{"AAAA", podClient, test.Case{
				Qname: "oauth.green.example.com.", Qtype: dns.TypeAAAA,
				Answer: []dns.RR{test.AAAA("oauth.green.example.com. 7 IN AAAA 2001:db8::9")},
			}},
			{"a cluster that is not listed is passed on", podClient, test.Case{
				Qname: "api.blue.example.com.", Qtype: dns.TypeA, Rcode: viewstest.Passed,
			}},
		})
	})
}

func TestViewsByClientAddress(t *testing.T) {
	h := start(t, `hcpviews {
		manifests testdata/manifests
		infra clusters/blue
		view vlan 192.0.2.0/24
		view pod 10.0.0.0/8
		view lab 10.9.0.0/16 203.0.113.7
		answer lab service clusters/blue-dns
	}`)
	api := func(address string) test.Case {
		return test.Case{
			Qname: "api.blue.example.com.", Qtype: dns.TypeA,
			Answer: []dns.RR{test.A("api.blue.example.com. 30 IN A " + address)},
		}
	}
	refused := test.Case{Qname: "api.blue.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeRefused}
	check(t, h, []viewCase{
		{"the VLAN", "192.0.2.77", api("192.0.2.3")},
		{"a routed client of the only VLAN", "192.0.2.200", api("192.0.2.3")},
		{"a pod", "10.128.0.1", api("10.96.0.10")},
		{"the longest prefix wins", "10.9.0.1", api("10.96.0.11")},
		{"a single address", "203.0.113.7", api("10.96.0.11")},
		{"other clients are refused", "203.0.113.8", refused},
	})
}

func TestServerFailureBeforeTheFirstSnapshot(t *testing.T) {
	h := unsynced()
	m := new(dns.Msg).SetQuestion("api.blue.example.com.", dns.TypeA).SetEdns0(1232, false)
	rec := dnstest.NewRecorder(&test.ResponseWriter{RemoteIP: blueClient})
	if _, err := h.ServeDNS(t.Context(), rec, m); err != nil {
		t.Fatal(err)
	}
	if rec.Rcode != dns.RcodeServerFailure {
		t.Errorf("rcode is %s, want SERVFAIL", dns.RcodeToString[rec.Rcode])
	}
	want := (&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNotReady}).String()
	if opt := rec.Msg.IsEdns0(); opt == nil || len(opt.Option) != 1 || opt.Option[0].String() != want {
		t.Errorf("the reply has no extended error %q: %s", want, rec.Msg)
	}
	expectRcode(t, h, new(dns.Msg).SetQuestion("www.example.net.", dns.TypeA), viewstest.Passed)
}

func TestACMEChallengesArePassedOn(t *testing.T) {
	h := start(t, "hcpviews {\n manifests testdata/manifests\n}")
	for _, name := range []string{
		"_acme-challenge.blue.example.com.", "_ACME-Challenge.api.blue.example.com.", "_acme-challenge.shop.apps.blue.example.com.", "_acme-challenge.api.blue.example.net.",
	} {
		expectRcode(t, h, new(dns.Msg).SetQuestion(name, dns.TypeTXT), viewstest.Passed)
	}
	for name, rcode := range map[string]int{
		"_acme-challengex.blue.example.com.": dns.RcodeNameError, "x._acme-challenge.blue.example.com.": dns.RcodeNameError, "_acme.blue.example.com.": dns.RcodeNameError,
	} {
		expectRcode(t, h, new(dns.Msg).SetQuestion(name, dns.TypeTXT), rcode)
	}
}

// TestGuardedZones checks that names outside of the guarded zones are passed on while there is no view to answer from, and
// that the zones do not limit the names that a view has.
func TestGuardedZones(t *testing.T) {
	const guard = " guard Blue.example.com api.green.example.com\n}"
	h := start(t, "hcpviews {\n manifests testdata/manifests\n view vlan 192.0.2.0/25\n view pod 10.0.0.0/8\n"+guard)
	check(t, h, []viewCase{
		{"a name of the view outside of the zones", blueClient, test.Case{
			Qname: "api.blue.example.net.", Qtype: dns.TypeA, Answer: []dns.RR{test.A("api.blue.example.net. 30 IN A 192.0.2.3")},
		}},
		{"a client without a view, inside", "203.0.113.1", test.Case{Qname: "x.BLUE.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeRefused}},
		{"a client without a view, outside", "203.0.113.1", test.Case{Qname: "api.blue.example.net.", Qtype: dns.TypeA, Rcode: viewstest.Passed}},
	})
	h.Source = &views.Source{}
	for name, rcode := range map[string]int{
		"blue.example.com.": dns.RcodeServerFailure, "shop.apps.blue.example.com.": dns.RcodeServerFailure, "api.green.example.com.": dns.RcodeServerFailure,
		"oauth.green.example.com.": viewstest.Passed, "www.example.net.": viewstest.Passed,
	} {
		expectRcode(t, h, new(dns.Msg).SetQuestion(name, dns.TypeA), rcode)
	}
}

func TestMetadataNamesTheView(t *testing.T) {
	h := start(t, "hcpviews {\n manifests testdata/manifests\n view vlan 192.0.2.0/25\n view pod 10.0.0.0/8\n}")
	for client, want := range map[string]string{blueClient: "vlan", podClient: "pod", "203.0.113.1": ""} {
		ctx := metadata.ContextWithMetadata(t.Context())
		state := request.Request{W: &test.ResponseWriter{RemoteIP: client}, Req: new(dns.Msg).SetQuestion(".", dns.TypeA)}
		f := metadata.ValueFunc(h.Metadata(ctx, state), "hcpviews/view")
		if f == nil {
			t.Fatal("no metadata")
		}
		if got := f(); got != want {
			t.Errorf("view of %s is %q, want %q", client, got, want)
		}
	}
}

func TestCacheBypassZones(t *testing.T) {
	h := &HCPViews{views.Handler{Zones: []string{".", "example.com."}}}
	if got := h.CacheBypassZones(); len(got) > 0 {
		t.Errorf("got %v, want none: a cache behind the plugin must store passed queries", got)
	}
	h.BehindCache = true
	if got := h.CacheBypassZones(); len(got) != 1 || got[0] != "example.com." {
		t.Errorf("got %v, want example.com. without the root, which would disable the cache", got)
	}
}
