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
	"github.com/densityops/oooi/test/lab"
)

// TestCorefileRecords checks records and names of VMs without an Infra, and that a changed file is used, but not an invalid one.
func TestCorefileRecords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db.records")
	write := func(text string) {
		t.Helper()
		lab.Must(t, os.WriteFile(file, []byte(text), 0o600))
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
	resolve := func(client, name string) string {
		t.Helper()
		node, exact := h.Source.Table().ClientView(netip.MustParseAddr(client)).Tree.Lookup(name)
		m := new(dns.Msg)
		if exact {
			node.Answer(m, name, dns.TypeA)
		}
		if len(m.Answer) != 1 {
			return ""
		}
		return dns.Field(m.Answer[0], 1)
	}
	for _, tc := range []struct{ client, name, want string }{
		{blueClient, "nfs.demo.example.com.", "192.0.2.9"},
		{podClient, "nfs.demo.example.com.", "192.0.2.9"},
		{blueClient, "api.demo.example.com.", "192.0.2.3"}, // a record does not replace it
		{blueClient, "worker-0.demo.example.com.", "192.0.2.10"},
		{podClient, "worker-0.demo.example.com.", ""},
	} {
		if got := resolve(tc.client, tc.name); got != tc.want {
			t.Errorf("%s queries %s: got %q, want %q", tc.client, tc.name, got, tc.want)
		}
	}
	write("nfs.demo.example.com. IN A 192.0.2.256\n")
	time.Sleep(time.Second) // two polls
	if got := resolve(blueClient, "nfs.demo.example.com."); got != "192.0.2.9" {
		t.Errorf("with an invalid file: got %q", got)
	}
	write("nfs.demo.example.com. IN A 192.0.2.88\n")
	lab.Poll(t, "the changed file to be used", func() bool { return resolve(blueClient, "nfs.demo.example.com.") == "192.0.2.88" })
	if _, err := parse(viewstest.Controller("hcpviews {\n records " + file + ".missing\n}")); err == nil {
		t.Error("a file that does not exist is not an error")
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
	lab.Must(t, err)
	reply := new(dns.Msg)
	if err := reply.Unpack(packed); err != nil || len(reply.Answer) != 1 {
		t.Fatal(err, reply)
	}
	var got []byte
	raw := make([]byte, dns.MaxMsgSize)
	end, err := dns.PackRR(reply.Answer[0], raw, 0, nil, false)
	lab.Must(t, err)
	for at := end - int(reply.Answer[0].Header().Rdlength); at < end; at += 1 + int(raw[at]) {
		got = append(got, raw[at+1:at+1+int(raw[at])]...)
	}
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
