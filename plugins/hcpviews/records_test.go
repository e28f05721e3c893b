package hcpviews

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/plugins/internal/viewstest"
)

func TestRecords(t *testing.T) {
	const (
		vm, pod = "192.0.2.77", "10.128.0.77"
		soa     = "demo.example.com. 5 IN SOA ns.dns.demo.example.com. hostmaster.demo.example.com. 1 7200 1800 86400 5"
		openSOA = "registry.example.net. 5 IN SOA ns.dns.demo.example.com. hostmaster.demo.example.com. 1 7200 1800 86400 5"
	)
	h := start(t, "hcpviews {\n manifests testdata/records\n}")
	check(t, h, []viewCase{
		{"addresses", vm, test.Case{Qname: "nfs.demo.example.com.", Qtype: dns.TypeA, Answer: []dns.RR{
			test.A("nfs.demo.example.com. 30 IN A 192.0.2.8"), test.A("nfs.demo.example.com. 30 IN A 192.0.2.9"),
		}}},
		{"another TTL of another type", vm, test.Case{Qname: "nfs.demo.example.com.", Qtype: dns.TypeAAAA, Answer: []dns.RR{
			test.AAAA("nfs.demo.example.com. 300 IN AAAA 2001:db8::9"),
		}}},
		{"the client's spelling", vm, test.Case{Qname: "NFS.Demo.example.com.", Qtype: dns.TypeAAAA, Answer: []dns.RR{
			test.AAAA("NFS.Demo.example.com. 300 IN AAAA 2001:db8::9"),
		}}},
		{"another type of a name", vm, test.Case{Qname: "nfs.demo.example.com.", Qtype: dns.TypeTXT, Ns: []dns.RR{test.SOA(soa)}}},
		{"an alias, of which a server adds the target", vm, test.Case{Qname: "Files.demo.example.com.", Qtype: dns.TypeA, Answer: []dns.RR{
			test.CNAME("Files.demo.example.com. 30 IN CNAME nfs.demo.example.com."),
		}}},
		{"ANY of an alias (RFC 8482)", vm, test.Case{Qname: "files.demo.example.com.", Qtype: dns.TypeANY, Answer: []dns.RR{
			&dns.HINFO{Hdr: dns.RR_Header{Name: "files.demo.example.com.", Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: 5}, Cpu: "RFC8482"},
		}}},
		{"a service", vm, test.Case{Qname: "_ldap._tcp.demo.example.com.", Qtype: dns.TypeSRV, Answer: []dns.RR{
			test.SRV("_ldap._tcp.demo.example.com. 30 IN SRV 0 0 0 ."), test.SRV("_ldap._tcp.demo.example.com. 30 IN SRV 10 20 389 nfs.demo.example.com."),
		}}},
		{"an empty non-terminal", vm, test.Case{Qname: "_tcp.demo.example.com.", Qtype: dns.TypeSRV, Ns: []dns.RR{test.SOA(soa)}}},
		{"an unknown name beside a record", vm, test.Case{Qname: "nfs2.demo.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError, Ns: []dns.RR{test.SOA(soa)}}},
		{"an unknown name below a record", vm, test.Case{Qname: "a.nfs.demo.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError, Ns: []dns.RR{test.SOA(soa)}}},
		{"a text at the apex", vm, test.Case{Qname: "demo.example.com.", Qtype: dns.TypeTXT, Answer: []dns.RR{test.TXT(`demo.example.com. 30 IN TXT "v=spf1 -all"`)}}},
		{"the text in the other view", pod, test.Case{Qname: "demo.example.com.", Qtype: dns.TypeTXT, Answer: []dns.RR{test.TXT(`demo.example.com. 30 IN TXT "v=spf1 -all"`)}}},
		{"the SOA of the apex", vm, test.Case{Qname: "demo.example.com.", Qtype: dns.TypeMX, Ns: []dns.RR{test.SOA(soa)}}},
		{"a record of the other view only", pod, test.Case{Qname: "nfs.demo.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError, Ns: []dns.RR{test.SOA(soa)}}},
		{"an app with another address", vm, test.Case{Qname: "shop.apps.demo.example.com.", Qtype: dns.TypeA, Answer: []dns.RR{
			test.A("shop.apps.demo.example.com. 30 IN A 192.0.2.7"),
		}}},
		{"other apps", vm, test.Case{Qname: "shop2.apps.demo.example.com.", Qtype: dns.TypeA, Rcode: viewstest.Passed}},
		{"a control-plane name", vm, test.Case{Qname: "api.demo.example.com.", Qtype: dns.TypeA, Answer: []dns.RR{
			test.A("api.demo.example.com. 30 IN A 192.0.2.3"),
		}}},
		{"a name outside of the domain", vm, test.Case{Qname: "registry.example.net.", Qtype: dns.TypeA, Answer: []dns.RR{
			test.A("registry.example.net. 30 IN A 192.0.2.6"),
		}}},
		{"its other types", vm, test.Case{Qname: "registry.example.net.", Qtype: dns.TypeHTTPS, Ns: []dns.RR{test.SOA(openSOA)}}},
		{"a name beside it", vm, test.Case{Qname: "www.example.net.", Qtype: dns.TypeA, Rcode: viewstest.Passed}},
		{"a name below it", vm, test.Case{Qname: "b.registry.example.net.", Qtype: dns.TypeA, Rcode: viewstest.Passed}},
		{"a wildcard", vm, test.Case{Qname: "a.B.dev.example.net.", Qtype: dns.TypeA, Answer: []dns.RR{test.A("a.B.dev.example.net. 30 IN A 192.0.2.5")}}},
		{"the wildcard itself", vm, test.Case{Qname: "*.dev.example.net.", Qtype: dns.TypeA, Answer: []dns.RR{test.A("*.dev.example.net. 30 IN A 192.0.2.5")}}},
		{"another type of a wildcard", vm, test.Case{Qname: "a.dev.example.net.", Qtype: dns.TypeAAAA, Ns: []dns.RR{
			test.SOA("dev.example.net. 5 IN SOA ns.dns.demo.example.com. hostmaster.demo.example.com. 1 7200 1800 86400 5"),
		}}},
		{"the parent of a wildcard", vm, test.Case{Qname: "dev.example.net.", Qtype: dns.TypeA, Rcode: viewstest.Passed}},
		{"the name of an address", vm, test.Case{Qname: "9.2.0.192.in-addr.arpa.", Qtype: dns.TypePTR, Answer: []dns.RR{
			test.PTR("9.2.0.192.in-addr.arpa. 30 IN PTR nfs.demo.example.com."),
		}}},
		{"the name of another address", vm, test.Case{Qname: "8.2.0.192.in-addr.arpa.", Qtype: dns.TypePTR, Rcode: viewstest.Passed}},
	})
}

func TestVMNames(t *testing.T) {
	const (
		vm, pod = "192.0.2.77", "10.128.0.77"
		soa     = "demo.example.com. 5 IN SOA ns.dns.demo.example.com. hostmaster.demo.example.com. 1 7200 1800 86400 5"
	)
	h := start(t, "hcpviews {\n manifests testdata/vms\n leases clusters/demo\n}")
	soaOf := func(zone string) []dns.RR {
		return []dns.RR{test.SOA(zone + " 5 IN SOA ns.dns.demo.example.com. hostmaster.demo.example.com. 1 7200 1800 86400 5")}
	}
	check(t, h, []viewCase{
		{"a VM", vm, test.Case{Qname: "worker-0.demo.example.com.", Qtype: dns.TypeA, Answer: []dns.RR{test.A("worker-0.demo.example.com. 30 IN A 192.0.2.10")}}},
		{"its other address", vm, test.Case{Qname: "Worker-0.demo.example.com.", Qtype: dns.TypeAAAA, Answer: []dns.RR{
			test.AAAA("Worker-0.demo.example.com. 30 IN AAAA 2001:db8::10"),
		}}},
		{"the name of its address", vm, test.Case{Qname: "10.2.0.192.in-addr.arpa.", Qtype: dns.TypePTR, Answer: []dns.RR{
			test.PTR("10.2.0.192.in-addr.arpa. 30 IN PTR worker-0.demo.example.com."),
		}}},
		{"the name of its IPv6 address", vm, test.Case{
			Qname: "0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", Qtype: dns.TypePTR, Answer: []dns.RR{
				test.PTR("0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. 30 IN PTR worker-0.demo.example.com."),
			},
		}},
		{"another type of an address", vm, test.Case{Qname: "10.2.0.192.in-addr.arpa.", Qtype: dns.TypeA, Ns: soaOf("10.2.0.192.in-addr.arpa.")}},
		{"an address in the subnet without a VM", vm, test.Case{Qname: "99.2.0.192.in-addr.arpa.", Qtype: dns.TypePTR, Ns: soaOf("99.2.0.192.in-addr.arpa.")}},
		{"an address beyond the subnet", vm, test.Case{Qname: "200.2.0.192.in-addr.arpa.", Qtype: dns.TypePTR, Rcode: viewstest.Passed}},
		{"an address in a subnet of whole octets", vm, test.Case{
			Qname: "9.100.51.198.in-addr.arpa.", Qtype: dns.TypePTR, Rcode: dns.RcodeNameError, Ns: soaOf("100.51.198.in-addr.arpa."),
		}},
		{"an empty non-terminal of the IPv6 subnet", vm, test.Case{
			Qname: "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", Qtype: dns.TypePTR, Ns: soaOf("0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa."),
		}},
		{"the new address of a VM", vm, test.Case{Qname: "worker-1.demo.example.com.", Qtype: dns.TypeA, Answer: []dns.RR{test.A("worker-1.demo.example.com. 30 IN A 192.0.2.12")}}},
		{"a control-plane name", vm, test.Case{Qname: "api.demo.example.com.", Qtype: dns.TypeA, Answer: []dns.RR{test.A("api.demo.example.com. 30 IN A 192.0.2.3")}}},
		{"a released address", vm, test.Case{Qname: "gone.demo.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError, Ns: []dns.RR{test.SOA(soa)}}},
		{"a client's own name", vm, test.Case{Qname: "laptop.demo.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError, Ns: []dns.RR{test.SOA(soa)}}},
		{"pods", pod, test.Case{Qname: "worker-0.demo.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError, Ns: []dns.RR{test.SOA(soa)}}},
		{"names of addresses for pods", pod, test.Case{Qname: "10.2.0.192.in-addr.arpa.", Qtype: dns.TypePTR, Rcode: viewstest.Passed}},
	})
}

// TestCorefileRecords checks records and names of VMs without an Infra, and that a changed file is used, but not an invalid one.
func TestCorefileRecords(t *testing.T) {
	const vm, pod = "192.0.2.77", "10.128.0.77"
	file := filepath.Join(t.TempDir(), "db.records")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("nfs.demo.example.com. IN A 192.0.2.9\napi.demo.example.com. IN A 192.0.2.66\n")
	h := start(t, `hcpviews {
		manifests testdata/vms
		hostedcluster clusters/demo
		leases clusters/demo
		records `+file+`
		view vlan 192.0.2.0/25
		view pod 10.128.0.0/14
		answer vlan 192.0.2.3
		answer pod 10.96.0.50
	}`)
	nfs := func(address string) test.Case {
		return test.Case{Qname: "nfs.demo.example.com.", Qtype: dns.TypeA, Answer: []dns.RR{test.A("nfs.demo.example.com. 30 IN A " + address)}}
	}
	soa := []dns.RR{test.SOA("demo.example.com. 5 IN SOA ns.dns.demo.example.com. hostmaster.demo.example.com. 1 7200 1800 86400 5")}
	check(t, h, []viewCase{
		{"a record", vm, nfs("192.0.2.9")}, {"a record for pods", pod, nfs("192.0.2.9")},
		{"a control-plane name", vm, test.Case{Qname: "api.demo.example.com.", Qtype: dns.TypeA, Answer: []dns.RR{test.A("api.demo.example.com. 30 IN A 192.0.2.3")}}},
		{"a VM", vm, test.Case{Qname: "worker-0.demo.example.com.", Qtype: dns.TypeA, Answer: []dns.RR{test.A("worker-0.demo.example.com. 30 IN A 192.0.2.10")}}},
		{"an address", vm, test.Case{Qname: "10.2.0.192.in-addr.arpa.", Qtype: dns.TypePTR, Answer: []dns.RR{
			test.PTR("10.2.0.192.in-addr.arpa. 30 IN PTR worker-0.demo.example.com."),
		}}},
		{"a VM for pods", pod, test.Case{Qname: "worker-0.demo.example.com.", Qtype: dns.TypeA, Rcode: dns.RcodeNameError, Ns: soa}},
	})
	write("nfs.demo.example.com. IN A 192.0.2.256\n")
	time.Sleep(time.Second) // two polls
	check(t, h, []viewCase{{"an invalid file", vm, nfs("192.0.2.9")}})
	write("nfs.demo.example.com. IN A 192.0.2.88\n")
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		node, _ := h.Source.Table().ClientView(netip.MustParseAddr(vm)).Tree.Lookup("nfs.demo.example.com.")
		m := new(dns.Msg)
		if node.Answer(m, "nfs.demo.example.com.", dns.TypeA); m.Answer[0].String() == nfs("192.0.2.88").Answer[0].String() {
			break
		}
	}
	check(t, h, []viewCase{{"a changed file", vm, nfs("192.0.2.88")}})
	if _, err := parse(viewstest.Controller("hcpviews {\n records " + file + ".missing\n}")); err == nil {
		t.Error("a file that does not exist is no error")
	}
}

// TestLongText checks that the character strings of a text are what clients join again.
func TestLongText(t *testing.T) {
	h := start(t, "hcpviews {\n manifests testdata/text\n}")
	want := strings.Repeat(`back\slash "quoted" ümlaut `, 20)
	rec := dnstest.NewRecorder(&test.ResponseWriter{RemoteIP: "192.0.2.77"})
	if _, err := h.ServeDNS(t.Context(), rec, new(dns.Msg).SetQuestion("text.demo.example.com.", dns.TypeTXT)); err != nil {
		t.Fatal(err)
	}
	packed, err := rec.Msg.Pack()
	if err != nil {
		t.Fatal(err)
	}
	reply := new(dns.Msg)
	if err := reply.Unpack(packed); err != nil || len(reply.Answer) != 1 {
		t.Fatal(err, reply)
	}
	var got []byte
	raw := make([]byte, dns.MaxMsgSize)
	end, err := dns.PackRR(reply.Answer[0], raw, 0, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for at := end - int(reply.Answer[0].Header().Rdlength); at < end; at += 1 + int(raw[at]) {
		got = append(got, raw[at+1:at+1+int(raw[at])]...)
	}
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
