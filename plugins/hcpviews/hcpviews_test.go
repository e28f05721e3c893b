package hcpviews

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/plugins/internal/views"
	"github.com/densityops/oooi/plugins/internal/viewstest"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// Clients of the manifests in testdata.
const (
	blueClient  = "192.0.2.77"
	greenClient = "198.51.100.77"
	podClient   = "10.128.0.77"
)

func start(tb testing.TB, corefile string) *HCPViews {
	tb.Helper()
	h, err := parse(viewstest.Controller(corefile))
	lab.Must(tb, err)
	viewstest.Start(tb, &h.Handler)
	return h
}

// unsynced returns a handler before its first snapshot.
func unsynced() *HCPViews {
	return &HCPViews{views.Handler{
		Zones: []string{"example.com."}, Source: &views.Source{}, Next: viewstest.Upstream(), Requests: requests,
	}}
}

func TestQueries(t *testing.T) {
	viewstest.Transcripts(t, golden.Transcript, func(t *testing.T, block string) plugin.Handler {
		t.Helper()
		return start(t, block)
	})
}

func expectRcode(t *testing.T, h *HCPViews, m *dns.Msg, rcode int) *dns.Msg {
	t.Helper()
	rec := dnstest.NewRecorder(&test.ResponseWriter{RemoteIP: blueClient})
	if _, err := h.ServeDNS(t.Context(), rec, m); err != nil {
		t.Fatal(err)
	}
	if rec.Rcode != rcode {
		t.Errorf("%s: rcode is %s, want %s", m.Question[0].String(), dns.RcodeToString[rec.Rcode], dns.RcodeToString[rcode])
	}
	return rec.Msg
}

func TestOtherClassesAndOpcodesArePassedOn(t *testing.T) {
	h := start(t, "hcpviews {\n manifests testdata/manifests\n}")
	chaos := new(dns.Msg).SetQuestion("api.blue.example.com.", dns.TypeA)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	expectRcode(t, h, chaos, viewstest.Passed)
	expectRcode(t, h, new(dns.Msg).SetNotify("blue.example.com."), viewstest.Passed)
}

func TestServerFailureBeforeTheFirstSnapshot(t *testing.T) {
	h := unsynced()
	reply := expectRcode(t, h, new(dns.Msg).SetQuestion("api.blue.example.com.", dns.TypeA).SetEdns0(1232, false), dns.RcodeServerFailure)
	want := (&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNotReady}).String()
	if opt := reply.IsEdns0(); opt == nil || len(opt.Option) != 1 || opt.Option[0].String() != want {
		t.Errorf("the reply has no extended error %q: %s", want, reply)
	}
	expectRcode(t, h, new(dns.Msg).SetQuestion("www.example.net.", dns.TypeA), viewstest.Passed)

	h = start(t, "hcpviews {\n manifests testdata/manifests\n guard Blue.example.com api.green.example.com\n}")
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

// TestUnlistedNamesAreRecorded queries names from the VLAN and from a pod.
func TestUnlistedNamesAreRecorded(t *testing.T) {
	h := start(t, "hcpviews {\n manifests testdata/manifests\n}")
	for _, q := range []struct {
		client, name string
		qtype        uint16
	}{
		{blueClient, "Images.example.org.", dns.TypeA}, {blueClient, "images.example.org.", dns.TypeAAAA}, {blueClient, "images.example.org.", dns.TypeMX},
		{blueClient, "api.blue.example.com.", dns.TypeA}, {podClient, "pods.example.org.", dns.TypeA},
	} {
		w := &test.ResponseWriter{RemoteIP: q.client}
		if _, err := h.ServeDNS(t.Context(), w, new(dns.Msg).SetQuestion(q.name, q.qtype)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, e := range Unlisted().Report().Entries {
		if strings.HasSuffix(e.Name, ".example.org") {
			got = append(got, fmt.Sprint(e.Name, " ", e.Client, " ", e.Queries))
		}
	}
	if want := []string{"images.example.org " + blueClient + " 2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
