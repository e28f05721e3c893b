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
)

// TestCoreDNSAnswersTheSame holds what is said of names against CoreDNS with our plugins, for
// every name of the model's own test data and of ours, its parents, and names below it.
func TestCoreDNSAnswersTheSame(t *testing.T) {
	dnsserver.Quiet = true
	stock := dnsserver.Directives
	if err := dnsserver.SetDirectives(slices.Insert(slices.Clone(stock), slices.Index(stock, "cache"), "hcpviews", "hcpapps")); err != nil {
		t.Fatal(err)
	}
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
			if err != nil {
				t.Fatal(err)
			}
			snapshot := model.Build(objects, resolve.Options())
			compare(t, objects, snapshot.Pod, serve(t, dir, "view pod"), resolve.Query{View: resolve.Pod})
			if len(snapshot.VLANs) == 1 { // we are on that then, wherever we are
				compare(t, objects, snapshot.VLANs[0].View, serve(t, dir, "view vlan 127.0.0.0/8"), resolve.Query{View: resolve.VLAN})
			}
		})
	}
}

// serve starts CoreDNS with the manifests, and returns its address. What it passes on comes back
// as NOTZONE.
func serve(t *testing.T, dir, view string) string {
	t.Helper()
	corefile := fmt.Sprintf(".:0 {\n bind 127.0.0.1\n hcpviews {\n manifests %s\n %s\n }\n hcpapps\n template IN ANY . {\n rcode NOTZONE\n }\n}", dir, view)
	instance, err := caddy.Start(caddy.CaddyfileInput{Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		instance.ShutdownCallbacks()
		if err := instance.Stop(); err != nil {
			t.Error(err)
		}
	})
	return instance.Servers()[0].LocalAddr().String()
}

func compare(t *testing.T, objects *model.Objects, view *model.View, server string, q resolve.Query) {
	t.Helper()
	counts := map[resolve.Result]int{}
	for _, name := range askable(view) {
		q.Name = name
		report, err := resolve.Ask(objects, q)
		if err != nil || len(report.Views) != 1 {
			t.Fatal(report, err)
		}
		said := report.Views[0]
		result, addresses := ask(t, server, name)
		if said.Result != result || !slices.Equal(said.Addresses, addresses) {
			t.Errorf("%s, %s: CoreDNS says %s %v, resolve %s %v", q.View, name, result, addresses, said.Result, said.Addresses)
		}
		if said.Result == resolve.Answered && (said.Cluster == nil || len(said.NameFrom) == 0 || len(said.AddressFrom) == 0) {
			t.Errorf("%s, %s: it does not say why: %+v", q.View, name, said)
		}
		counts[said.Result]++
	}
	t.Logf("%s: %v", q.View, counts)
}

// askable are names to ask for.
func askable(view *model.View) []string {
	var all []string
	add := func(name string) {
		all = append(all, "x."+name, "a.b."+name)
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
	slices.Sort(all)
	return slices.Compact(all)
}

func ask(t *testing.T, server, name string) (resolve.Result, []netip.Addr) {
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
