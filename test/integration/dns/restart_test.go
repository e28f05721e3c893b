package dns_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// restartCorefile is the Corefile of a pod on the VLAN as setup renders it, with a listener for each view and guarded
// zones.
const restartCorefile = `.:$DNS {
		bind 127.0.0.2
		errors
		ready 127.0.0.1:$READY
		prometheus 127.0.0.1:$METRICS
		hcpviews {
			kubeconfig $KUBECONFIG
			infra clusters/blue
			guard $DOMAIN
			view vlan
			$SNAPSHOT
		}
		hcpapps
		cache
		forward . $UPSTREAM
	}
	.:$DNS {
		bind 127.0.0.1
		errors
		prometheus 127.0.0.1:$METRICS
		hcpviews {
			kubeconfig $KUBECONFIG
			infra clusters/blue
			guard $DOMAIN
			view pod
			$SNAPSHOT
		}
		hcpapps
		forward . $UPSTREAM
	}`

func TestRestartDuringAnAPIServerOutage(t *testing.T) {
	cp := management.Get(t)
	cp.Create(t, blue.yaml())
	addHostedCluster(t, cp)
	upstream := newUpstreamResolver(t)
	variables := func(snapshot string) map[string]string {
		return map[string]string{"DOMAIN": domain, "KUBECONFIG": cp.Kubeconfig(), "UPSTREAM": upstream.address, "SNAPSHOT": snapshot}
	}
	questions := func(vlan, pods, vlanApps, podApps, unknown string) []question {
		return []question{
			{from: blueVM, to: "127.0.0.2", name: "api.blue." + domain, want: vlan},
			{from: blueVM, to: "127.0.0.2", name: "shop.apps.blue." + domain, want: vlanApps},
			{from: blueVM, to: "127.0.0.2", name: "typo.blue." + domain, want: unknown},
			{from: pod, name: "api.blue." + domain, want: pods},
			{from: pod, name: "shop.apps.blue." + domain, want: podApps},
			{from: pod, name: "typo.blue." + domain, want: unknown},
		}
	}
	known := questions(blue.proxy, blue.pod, blueApps, blue.pod, nxDomain)
	upstreamQuestions := []question{
		{from: blueVM, to: "127.0.0.2", name: "www.example.org", want: upstreamAnswer},
		{from: pod, name: "www.example.org", want: upstreamAnswer},
		{from: blueVM, to: "127.0.0.2", name: "sibling.apps.management.example.com", want: upstreamAnswer},
		{from: pod, name: "sibling.apps.management.example.com", want: upstreamAnswer},
	}
	file := filepath.Join(t.TempDir(), "snapshot.json")
	withSnapshot := startCoreDNS(t, restartCorefile, variables("snapshot "+file))
	withSnapshot.await(t, known...)
	lab.Poll(t, "the snapshot file to contain the apps address", func() bool {
		data, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(data), blueApps)
	})
	if data, err := os.ReadFile(file); err != nil || strings.Contains(string(data), "client-key-data") {
		t.Errorf("the snapshot file contains credentials, or cannot be read: %v", err)
	}

	outage := lab.StartOutage(t, cp)
	withSnapshot.Kill(t)
	withoutSnapshot := startCoreDNS(t, restartCorefile, variables(""))
	withSnapshot.Start(t)

	withSnapshot.await(t, known...)
	withSnapshot.expect(t, upstreamQuestions...)
	if !withSnapshot.isReady(t) {
		t.Error("not ready with a snapshot")
	}
	if synced := withSnapshot.Metric(t, "coredns_oooi_synced"); synced != 0 {
		t.Errorf("with data of the snapshot file, coredns_oooi_synced is %.0f", synced)
	}
	if age := withSnapshot.Metric(t, "coredns_oooi_snapshot_age_seconds"); age <= 0 {
		t.Errorf("with data of the snapshot file, its age is %.3f s", age)
	}

	withoutSnapshot.await(t, questions(servFail, servFail, servFail, servFail, servFail)...)
	withoutSnapshot.expect(t, upstreamQuestions...)
	if withoutSnapshot.isReady(t) {
		t.Error("ready without a snapshot")
	}
	for _, q := range questions("", "", "", "", "") {
		reasons := withoutSnapshot.extendedErrors(t, q)
		if len(reasons) != 1 || reasons[0] != dns.ExtendedErrorCodeNotReady {
			t.Errorf("%s: extended errors %v, want %d", q, reasons, dns.ExtendedErrorCodeNotReady)
		}
	}
	for _, q := range known {
		if n := upstream.count(q.name); n > 0 {
			t.Errorf("%s was forwarded %d times", q.name, n)
		}
	}

	outage.End(t)
	moved := blue
	moved.proxy = "127.50.0.33"
	cp.MustApply(t, moved.infra())
	// HyperShift creates this Route only after setup.
	const metricsProxy = "metrics-proxy-clusters-blue.apps.management.example.com"
	cp.Create(t, lab.Route("clusters-blue", "metrics-proxy", metricsProxy, "metrics-proxy"))
	for _, c := range []*coredns{withSnapshot, withoutSnapshot} {
		c.await(t, questions(moved.proxy, blue.pod, blueApps, blue.pod, nxDomain)...)
		c.await(t, question{from: blueVM, to: "127.0.0.2", name: metricsProxy, want: moved.proxy}, question{from: pod, name: metricsProxy, want: blue.pod})
		c.expect(t, upstreamQuestions...)
		if !c.isReady(t) {
			t.Error("not ready after the outage")
		}
		lab.Poll(t, "the store to be in sync", func() bool {
			return c.Metric(t, "coredns_oooi_synced") == 1 && c.Metric(t, "coredns_oooi_snapshot_age_seconds") == 0
		})
	}
}

// extendedErrors asks a question with EDNS and returns the extended error codes of the reply (RFC 8914). It
// also checks that the reply to a query without EDNS lacks an OPT record.
func (c *coredns) extendedErrors(t *testing.T, q question) []uint16 {
	t.Helper()
	exchange := func(m *dns.Msg) *dns.Msg {
		t.Helper()
		client := dns.Client{Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(q.from)}}}
		reply, _, err := client.ExchangeContext(t.Context(), m, net.JoinHostPort(q.listener(), strconv.Itoa(c.port)))
		lab.Must(t, err)
		return reply
	}
	query := new(dns.Msg).SetQuestion(dns.Fqdn(q.name), q.rrtype())
	if exchange(query).IsEdns0() != nil {
		t.Errorf("%s: reply with EDNS to a query without it", q)
	}
	reply := exchange(query.SetEdns0(dns.DefaultMsgSize, false))
	opt := reply.IsEdns0()
	if opt == nil {
		t.Fatalf("%s: reply without EDNS to a query with it", q)
	}
	var codes []uint16
	for _, option := range opt.Option {
		if e, ok := option.(*dns.EDNS0_EDE); ok {
			codes = append(codes, e.InfoCode)
		}
	}
	return codes
}
