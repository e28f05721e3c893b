package resolve_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/kubectl-oooi/internal/resolve"
	_ "github.com/densityops/oooi/plugins/hcpapps"
	_ "github.com/densityops/oooi/plugins/hcpviews"
	"github.com/densityops/oooi/test/lab"
)

// TestReportsMatchCoreDNS compares the reports with responses of CoreDNS with oooi's plugins, for every name in the
// test data of the model and of this package, its parents, and names below and beside it.
func TestReportsMatchCoreDNS(t *testing.T) {
	dnsserver.Quiet = true
	directives := dnsserver.Directives
	lab.Must(t, dnsserver.SetDirectives(slices.Insert(slices.Clone(directives), slices.Index(directives, "cache"), "hcpviews", "hcpapps")))
	folders, err := filepath.Glob("../../../internal/model/testdata/*")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	for _, dir := range append(folders, "testdata/nested") {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			objects, err := watch.ReadManifests(dir, resolve.Options())
			lab.Must(t, err)
			snapshot := model.Build(objects, resolve.Options())
			compare(t, objects, snapshot.Pod(), serve(t, dir, "view pod"), resolve.Query{View: resolve.Pod})
			if len(snapshot.VLANs) == 1 { // the VLAN is 127.0.0.0/8, so this client is on it
				compare(t, objects, snapshot.VLANs[0].View, serve(t, dir, "view vlan 127.0.0.0/8"), resolve.Query{View: resolve.VLAN})
			}
		})
	}
}

// serve starts CoreDNS with the manifests, and returns its address. It returns NOTZONE instead of forwarding queries.
func serve(t *testing.T, dir, view string) string {
	t.Helper()
	corefile := fmt.Sprintf(".:0 {\n bind 127.0.0.1\n hcpviews {\n manifests %s\n leases clusters/demo\n proxyserver clusters/demo\n %s\n }\n hcpapps\n template IN ANY . {\n rcode NOTZONE\n }\n}", dir, view)
	instance, err := caddy.Start(caddy.CaddyfileInput{Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns"})
	lab.Must(t, err)
	t.Cleanup(func() {
		instance.ShutdownCallbacks()
		lab.Report(t, instance.Stop())
	})
	return instance.Servers()[0].LocalAddr().String()
}

// compare compares a server's responses with the report of query q in a view.
func compare(t *testing.T, objects *model.Objects, view *model.View, server string, q resolve.Query) {
	t.Helper()
	counts := map[resolve.Result]int{}
	for _, name := range testNames(view) {
		q.Name = name
		report, err := resolve.Compute(objects, q)
		if err != nil || len(report.Views) != 1 {
			t.Fatal(report, err)
		}
		got := report.Views[0]
		if got.Result == resolve.Answered && len(got.Records) > 0 && len(got.Addresses) == 0 {
			got.Result = resolve.NoAddress // for the types A and AAAA
		}
		result, addresses := lookup(t, server, name)
		if got.Result != result || !slices.Equal(got.Addresses, addresses) {
			t.Errorf("%s, %s: CoreDNS answers %s %v, resolve %s %v", q.View, name, result, addresses, got.Result, got.Addresses)
		}
		if got.Result == resolve.Answered && len(got.Records) == 0 && (got.Cluster == nil || len(got.NameFrom) == 0 || len(got.AddressFrom) == 0) {
			t.Errorf("%s, %s: a source is missing: %+v", q.View, name, got)
		}
		counts[got.Result]++
	}
	t.Logf("%s: %v", q.View, counts)
}

// testNames returns the names of a view, their parents, and names below and beside them.
func testNames(view *model.View) []string {
	var all []string
	add := func(name string) {
		all = append(all, "x."+name, "a.b."+name, model.ACMEChallenge+name)
		for at := name; at != ""; _, at, _ = strings.Cut(at, ".") {
			all = append(all, at, "beside."+at)
		}
	}
	add("www.example.org")
	for _, n := range view.Names {
		add(n.Name)
	}
	for _, a := range view.Apps {
		add(a.Name)
		add("*." + a.Name)
		add(a.NameServer())
	}
	for _, z := range view.Zones {
		add(z.Origin)
	}
	for _, r := range view.Records {
		add(r.Name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lookup queries A and AAAA records of a name.
func lookup(t *testing.T, server, name string) (resolve.Result, []netip.Addr) {
	t.Helper()
	var addresses []netip.Addr
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m := new(dns.Msg)
		m.SetQuestion(dns.Fqdn(name), kind)
		reply, _, err := new(dns.Client).ExchangeContext(t.Context(), m, server)
		if err != nil {
			t.Fatal(name, err)
		}
		switch reply.Rcode {
		case dns.RcodeSuccess:
		case dns.RcodeNameError:
			return resolve.NotFound, nil
		case dns.RcodeNotZone:
			return resolve.PassedOn, nil
		case dns.RcodeServerFailure:
			return resolve.Failed, nil
		default:
			t.Fatalf("%s: %s", name, reply)
		}
		for _, rr := range reply.Answer {
			var ip []byte
			switch rr := rr.(type) {
			case *dns.A:
				ip = rr.A.To4()
			case *dns.AAAA:
				ip = rr.AAAA
			}
			if a, ok := netip.AddrFromSlice(ip); ok {
				addresses = append(addresses, a)
			}
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return cmp.Or(map[bool]resolve.Result{true: resolve.NoAddress}[len(addresses) == 0], resolve.Answered), addresses
}
