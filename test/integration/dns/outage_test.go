package dns_test

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// everyKindOfQuestion returns questions from every view for control-plane names and apps names, known and
// unknown.
func everyKindOfQuestion() []question {
	return []question{
		{from: blueVM, name: "api.blue." + domain, want: blue.proxy},
		{from: blueVM, name: "api-int.blue." + domain, want: blue.proxy},
		{from: blueVM, name: blue.routeHost(), want: blue.proxy},
		{from: blueVM, name: "oauth-openshift.apps.blue." + domain, want: blue.proxy},
		{from: blueVM, name: "shop-#.apps.blue." + domain, want: blueApps},
		{from: blueVM, name: "a.b-#.apps.blue." + domain, want: blueApps},
		{from: blueVM, name: "console-openshift-console.blue." + domain, want: blueApps},
		{from: blueVM, name: "typo-#.blue." + domain, want: nxDomain},
		{from: blueVM, name: "api.blue." + domain, qtype: dns.TypeHTTPS, want: noData},
		{from: blueVM, name: "shop.apps.blue." + domain, qtype: dns.TypeAAAA, want: noData},
		{from: blueVM, name: "api.green." + domain, want: upstreamAnswer},
		{from: blueVM, name: "shop-#.apps.green." + domain, want: upstreamAnswer},
		{from: blueVM, name: "www-#.example.org", want: upstreamAnswer},
		{from: greenVM, name: "api.green." + domain, want: green.proxy},
		{from: greenVM, name: green.routeHost(), want: green.proxy},
		{from: greenVM, name: "shop-#.apps.green." + domain, want: greenApps},
		{from: greenVM, name: "typo-#.green." + domain, want: nxDomain},
		{from: greenVM, name: "api.blue." + domain, want: upstreamAnswer},
		{from: pod, name: "api.blue." + domain, want: blue.pod},
		{from: pod, name: blue.routeHost(), want: blue.pod},
		{from: pod, name: "shop-#.apps.blue." + domain, want: blue.pod},
		{from: pod, name: "typo-#.blue." + domain, want: nxDomain},
		{from: pod, name: "api.green." + domain, want: green.pod},
		{from: pod, name: "shop-#.apps.green." + domain, want: green.pod},
		{from: pod, name: "www.example.org", want: upstreamAnswer},
	}
}

func TestAnswersAreCorrectDuringAPIServerOutages(t *testing.T) {
	cp := management.Get(t)
	cp.Create(t, blue.yaml()+green.yaml())
	guest := addHostedCluster(t, cp)
	c := startCoreDNS(t, `.:$DNS {
		bind 127.0.0.1
		errors
		prometheus 127.0.0.1:$METRICS
		hcpviews {
			kubeconfig $KUBECONFIG
		}
		hcpapps
		cache
		forward . $UPSTREAM
	}`, map[string]string{"KUBECONFIG": cp.Kubeconfig(), "UPSTREAM": newUpstreamResolver(t).address})
	questions := everyKindOfQuestion()
	c.await(t, questions...)
	age := func() float64 { return c.Metric(t, "coredns_oooi_snapshot_age_seconds") }
	lab.Poll(t, "a snapshot age of 0", func() bool { return age() == 0 })

	stop := startLoad(t, c, questions)
	problems := func() float64 { return c.Metric(t, "coredns_oooi_problems") }
	time.Sleep(time.Second) // under load, as below

	outage := lab.StartOutage(t, cp)
	lab.Poll(t, "the outage to show in the snapshot age", func() bool { return age() > 0 })
	ageBefore := age()
	time.Sleep(2 * time.Second)
	if n := problems(); n != 0 {
		t.Errorf("%.0f problems during the management cluster's outage", n)
	}
	hostedOutage := lab.StartOutage(t, guest)
	lab.Poll(t, "the outage of the hosted cluster to show", func() bool {
		return c.Metric(t, `coredns_oooi_problems{reason="HostedClusterUnreachable"}`) == 1
	})
	time.Sleep(2 * time.Second)
	if ageAfter := age(); ageAfter < ageBefore+1 {
		t.Errorf("the snapshot age was %.3f s, and seconds later %.3f s", ageBefore, ageAfter)
	}
	if n := c.Metric(t, "coredns_oooi_hosted_clusters"); n != 2 {
		t.Errorf("%.0f hosted clusters during the outage, want 2", n)
	}
	hostedOutage.End(t)
	outage.End(t)
	lab.Poll(t, "a snapshot age of 0 again", func() bool { return age() == 0 })

	// Changes after the outages are served: new objects, a changed one, and one in the hosted cluster.
	added := cluster{name: "added", net: "127.70.0", proxy: "127.70.0.3", pod: "127.96.1.70", apps: "{enabled: false}"}
	cp.Create(t, added.yaml())
	renamed := blue.site().HostedCluster()
	renamed.More += "\n  kubeAPIServerDNSName: custom.example.net"
	cp.MustApply(t, renamed.YAML())
	changed := time.Now()
	c.await(t,
		question{from: "127.70.0.10", name: "api.added." + domain, want: added.proxy},
		question{from: pod, name: "api.added." + domain, want: added.pod},
		question{from: blueVM, name: "custom.example.net", want: blue.proxy},
	)
	t.Logf("changes after the outage are served %s after the last one", time.Since(changed).Round(time.Millisecond))
	stop()
	lab.AssignAddresses(t, guest.Client(t), "openshift-ingress", "blue-apps", blueAppsNext)
	c.await(t, question{from: blueVM, name: "shop.apps.blue." + domain, want: blueAppsNext})
	lab.Poll(t, "no problem left", func() bool { return problems() == 0 })

	for line, n := range repeated(c.Log) {
		t.Errorf("logged %d times: %s", n, line)
	}
}
