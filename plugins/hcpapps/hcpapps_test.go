package hcpapps

import (
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/plugins/internal/viewstest"
)

// Clients of the manifests in testdata.
const (
	blueClient  = "192.0.2.77"
	greenClient = "198.51.100.77"
	redClient   = "203.0.113.77"
	greyClient  = "203.0.113.177"
	podClient   = "10.128.0.77"
)

func start(t *testing.T, corefile string) *HCPApps {
	t.Helper()
	h, err := parse(viewstest.Controller(corefile))
	if err != nil {
		t.Fatal(err)
	}
	viewstest.Start(t, &h.Handler)
	return h
}

type viewCase struct {
	name   string
	client string
	test.Case
}

func check(t *testing.T, h *HCPApps, cases []viewCase) {
	t.Helper()
	for _, tc := range cases {
		viewstest.Ask(t, h, tc.name, tc.client, tc.Case)
	}
}

func a(name, address string) test.Case {
	return test.Case{Qname: name, Qtype: dns.TypeA, Answer: []dns.RR{test.A(name + " 30 IN A " + address)}}
}

func passedOn(name string) test.Case {
	return test.Case{Qname: name, Qtype: dns.TypeA, Rcode: viewstest.Passed}
}

func negative(name string, qtype uint16, rcode int, origin, domain string) test.Case {
	return test.Case{Qname: name, Qtype: qtype, Rcode: rcode, Ns: []dns.RR{
		test.SOA(origin + " 5 IN SOA ns-dns." + origin + " hostmaster." + domain + " 1 7200 1800 86400 5"),
	}}
}

func TestApplicationsByView(t *testing.T) {
	h := start(t, "hcpapps {\n manifests testdata/manifests\n}")
	check(t, h, []viewCase{
		{"clients on the VLAN get the apps address", blueClient, a("shop.apps.blue.example.com.", "192.0.2.100")},
		{"and its IPv6 address", blueClient, test.Case{
			Qname: "shop.apps.blue.example.com.", Qtype: dns.TypeAAAA,
			Answer: []dns.RR{test.AAAA("shop.apps.blue.example.com. 30 IN AAAA 2001:db8::100")},
		}},
		{"pods get the proxy's Service", podClient, a("shop.apps.blue.example.com.", "10.96.0.10")},
		{"a name two labels deep", blueClient, a("a.b.apps.blue.example.com.", "192.0.2.100")},
		{"the other apps domain, outside of the cluster domain", blueClient, a("shop.apps.example.net.", "192.0.2.100")},
		{"the console under the cluster domain", blueClient, a("console-openshift-console.blue.example.com.", "192.0.2.100")},
		{"the allowed address of the newest mirrored Service", greenClient, a("shop.apps.green.example.com.", "198.51.100.201")},
		{"the address in the Infra's status", redClient, a("shop.apps.red.example.com.", "203.0.113.100")},
		{"pods get no applications of a cluster without a proxy", podClient, passedOn("shop.apps.red.example.com.")},
		{"a cluster without appsIngress has no applications", greyClient, passedOn("shop.apps.grey.example.com.")},
		{"applications of another cluster are passed on", greenClient, passedOn("shop.apps.blue.example.com.")},
		{"control-plane names are passed on", blueClient, passedOn("api.blue.example.com.")},
		{"control-plane names inside the apps domain are passed on", blueClient, passedOn("oauth-openshift.apps.blue.example.com.")},
		{"other names of the cluster domain are passed on", blueClient, passedOn("typo.blue.example.com.")},
	})
}

func TestProtocol(t *testing.T) {
	h := start(t, "hcpapps {\n manifests testdata/manifests\n}")
	const apps, domain = "apps.blue.example.com.", "blue.example.com."
	check(t, h, []viewCase{
		{"the SOA of the apps domain without hcpviews", blueClient, test.Case{
			Qname: apps, Qtype: dns.TypeSOA,
			Answer: []dns.RR{test.SOA(apps + " 30 IN SOA ns-dns." + apps + " hostmaster." + domain + " 1 7200 1800 86400 5")},
		}},
		{"the apps domain itself has no address", blueClient, negative(apps, dns.TypeA, dns.RcodeSuccess, apps, domain)},
		{"the wildcard itself", blueClient, a("*."+apps, "192.0.2.100")},
		{"the answer has the query's spelling", blueClient, a("Shop.APPS.blue.example.com.", "192.0.2.100")},
		{"another type of an application", blueClient, negative("shop."+apps, dns.TypeHTTPS, dns.RcodeSuccess, apps, domain)},
		{"the wildcard does not match a parent of a control-plane name", blueClient, negative("internal."+apps, dns.TypeA, dns.RcodeSuccess, apps, domain)},
		{"names below that parent do not exist", blueClient, negative("x.internal."+apps, dns.TypeA, dns.RcodeNameError, apps, domain)},
		{"names below the console's name do not exist", blueClient, negative("x.console-openshift-console."+domain, dns.TypeA,
			dns.RcodeNameError, "console-openshift-console."+domain, domain)},
		{"ANY", blueClient, test.Case{
			Qname: "shop." + apps, Qtype: dns.TypeANY,
			Answer: []dns.RR{test.HINFO("shop." + apps + ` 5 IN HINFO "RFC8482" ""`)},
		}},
		{"AXFR", blueClient, test.Case{Qname: apps, Qtype: dns.TypeAXFR, Rcode: dns.RcodeRefused}},
	})
}

func TestStandaloneSources(t *testing.T) {
	h := start(t, `hcpapps {
		manifests testdata/manifests
		hostedcluster clusters/green
		view lab
		answer lab 192.0.2.9
		source mirrored
		service clusters-green/a1111
		allow 198.51.100.0/24
		ttl 9
	}`)
	check(t, h, []viewCase{
		{"the named Service", podClient, test.Case{
			Qname: "shop.apps.green.example.com.", Qtype: dns.TypeA,
			Answer: []dns.RR{test.A("shop.apps.green.example.com. 9 IN A 198.51.100.200")},
		}},
	})
}

func TestNoAddressIsNoData(t *testing.T) {
	h := start(t, `hcpapps {
		manifests testdata/manifests
		infra clusters/green
		allow 192.0.2.0/24
	}`)
	check(t, h, []viewCase{
		{"the mirrored addresses are not allowed", greenClient, negative("shop.apps.green.example.com.", dns.TypeA, dns.RcodeSuccess,
			"apps.green.example.com.", "green.example.com.")},
	})
}

func TestSetup(t *testing.T) {
	for _, tc := range []struct{ input, wantErr string }{
		{"hcpapps", ""},
		{"hcpapps {\n source mirrored status\n}", ""},
		{"hcpapps {\n view lab\n answer lab 192.0.2.9\n hostedcluster a/b\n source hosted\n credentials a/secret\n allow 192.0.2.0/24\n}", ""},
		{"hcpapps {\n source hosted\n selector app=router,tier=web\n}", ""},
		{"hcpapps {\n source\n}", "source: want one or more of hosted, mirrored, status"},
		{"hcpapps {\n source guess\n}", `source: "guess": want one or more of hosted, mirrored, status`},
		{"hcpapps {\n source status status\n}", "source: duplicate status"},
		{"hcpapps {\n service noslash\n}", `service: "noslash" is not NAMESPACE/NAME`},
		{"hcpapps {\n selector broken\n}", `selector: "broken" is not KEY=VALUE`},
		{"hcpapps {\n allow 300.1.1.1/8\n}", `allow: "300.1.1.1/8" is not a network`},
		{"hcpapps {\n credentials a/b/c\n}", `credentials: "a/b/c" is not NAMESPACE/NAME`},
		{"hcpapps {\n source hosted\n credentials a/b\n}", "credentials require exactly one hosted cluster"},
		{"hcpapps {\n view lab\n answer lab 192.0.2.9\n hostedcluster a/b\n credentials a/b\n}", "credentials require 'source hosted'"},
		{"hcpapps {\n source hosted\n service a/b\n selector c=d\n}", "service and selector are mutually exclusive"},
		{"hcpapps {\n service a/b\n}", "service and selector require 'source"},
		{"hcpapps {\n view lab\n answer lab 192.0.2.9\n hostedcluster a/b\n source mirrored\n}", "allow is required without an Infra; list the accepted networks with 'allow CIDR'"},
		{"hcpapps {\n nonsense\n}", "unknown property 'nonsense'"},
	} {
		_, err := parse(viewstest.Controller(tc.input))
		switch {
		case tc.wantErr == "" && err != nil:
			t.Errorf("%s: %v", tc.input, err)
		case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
			t.Errorf("%s: error %v, want one with %q", tc.input, err, tc.wantErr)
		}
	}
}
