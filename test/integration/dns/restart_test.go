package dns_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// restarted is a Corefile as it is in a pod on the VLAN: a listener for each view, and
// the zones listed.
const restarted = `.:$DNS {
		bind 127.0.0.2
		errors
		ready 127.0.0.1:$READY
		prometheus 127.0.0.1:$METRICS
		hcpviews $DOMAIN {
			kubeconfig $KUBECONFIG
			infra clusters/blue
			view vlan
			$SNAPSHOT
		}
		hcpapps $DOMAIN
		cache
		forward . $SITE
	}
	.:$DNS {
		bind 127.0.0.1
		errors
		prometheus 127.0.0.1:$METRICS
		hcpviews $DOMAIN {
			kubeconfig $KUBECONFIG
			infra clusters/blue
			view pod
			$SNAPSHOT
		}
		hcpapps $DOMAIN
		forward . $SITE
	}`

func TestRestartWhileTheAPIServerIsAway(t *testing.T) {
	cp := management.Get(t)
	apply(t, cp, blue.yaml())
	withHosted(t, cp)
	site := newSite(t)
	words := func(snapshot string) map[string]string {
		return map[string]string{"DOMAIN": domain, "KUBECONFIG": cp.Kubeconfig(), "SITE": site.address, "SNAPSHOT": snapshot}
	}
	inside := func(vlan, pods, vlanApps, podApps, unknown string) []question {
		return []question{
			{from: blueVM, to: "127.0.0.2", name: "api.blue." + domain, want: vlan},
			{from: blueVM, to: "127.0.0.2", name: "shop.apps.blue." + domain, want: vlanApps},
			{from: blueVM, to: "127.0.0.2", name: "typo.blue." + domain, want: unknown},
			{from: pod, name: "api.blue." + domain, want: pods},
			{from: pod, name: "shop.apps.blue." + domain, want: podApps},
			{from: pod, name: "typo.blue." + domain, want: unknown},
		}
	}
	known := inside(blue.proxy, blue.pod, blueApps, blue.pod, nxDomain)
	outside := []question{
		{from: blueVM, to: "127.0.0.2", name: "www.example.org", want: elsewhere},
		{from: pod, name: "www.example.org", want: elsewhere},
	}
	file := filepath.Join(t.TempDir(), "snapshot.json")
	keeper := startCoreDNS(t, restarted, words("snapshot "+file))
	keeper.await(t, known...)
	lab.Poll(t, "the snapshot file to hold what is answered", func() bool {
		data, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(data), blueApps)
	})
	if data, err := os.ReadFile(file); err != nil || strings.Contains(string(data), "client-key-data") {
		t.Errorf("the snapshot file holds credentials, or cannot be read: %v", err)
	}

	away := lab.StartOutage(t, cp)
	keeper.Kill(t)
	forgetful := startCoreDNS(t, restarted, words(""))
	keeper.Start(t)

	keeper.await(t, known...)
	keeper.expect(t, outside...)
	if !keeper.isReady(t) {
		t.Error("with something to answer from, it is not ready")
	}
	if synced := keeper.metric(t, "coredns_oooi_synced"); synced != 0 {
		t.Errorf("from the file, coredns_oooi_synced is %.0f", synced)
	}
	if age := keeper.metric(t, "coredns_oooi_snapshot_age_seconds"); age <= 0 {
		t.Errorf("from the file, the age is %.3f s", age)
	}

	forgetful.await(t, inside(servFail, servFail, servFail, servFail, servFail)...)
	forgetful.expect(t, outside...)
	if forgetful.isReady(t) {
		t.Error("without anything to answer from, it is ready")
	}
	for _, q := range inside("", "", "", "", "") {
		reasons := forgetful.extendedErrors(t, q)
		if len(reasons) != 1 || reasons[0] != dns.ExtendedErrorCodeNotReady {
			t.Errorf("%s has the extended errors %v, want %d", q, reasons, dns.ExtendedErrorCodeNotReady)
		}
	}
	for _, q := range known {
		if n := site.count(q.name); n > 0 {
			t.Errorf("%s was asked of the site %d times: it was forwarded while it was not known", q.name, n)
		}
	}

	away.End(t)
	moved := blue
	moved.proxy = "127.50.0.33"
	update(t, cp, moved.infra())
	for _, c := range []*coredns{keeper, forgetful} {
		c.await(t, inside(moved.proxy, blue.pod, blueApps, blue.pod, nxDomain)...)
		c.expect(t, outside...)
		if !c.isReady(t) {
			t.Error("with the API server back, it is not ready")
		}
		lab.Poll(t, "the store to be live", func() bool {
			return c.metric(t, "coredns_oooi_synced") == 1 && c.metric(t, "coredns_oooi_snapshot_age_seconds") == 0
		})
	}
}

// extendedErrors asks with EDNS and returns the extended error codes (RFC 8914); it
// fails the test when there are any without EDNS.
func (c *coredns) extendedErrors(t *testing.T, q question) []uint16 {
	t.Helper()
	plain, err := c.exchange(t.Context(), q, q.message())
	if err != nil {
		t.Fatal(err)
	}
	if plain.IsEdns0() != nil {
		t.Errorf("%s: a query without EDNS has a reply with it", q)
	}
	reply, err := c.exchange(t.Context(), q, q.message().SetEdns0(dns.DefaultMsgSize, false))
	if err != nil {
		t.Fatal(err)
	}
	opt := reply.IsEdns0()
	if opt == nil {
		t.Fatalf("%s: a query with EDNS has a reply without it", q)
	}
	var codes []uint16
	for _, option := range opt.Option {
		if e, ok := option.(*dns.EDNS0_EDE); ok {
			codes = append(codes, e.InfoCode)
		}
	}
	return codes
}
