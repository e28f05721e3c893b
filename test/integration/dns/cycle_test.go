package dns_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// tenantCorefile is the Corefile of one hosted cluster's DNS: a block for its VLAN, which forwards to the
// upstream resolvers, and one for pods, which does not forward.
const tenantCorefile = `.:$DNS {
		bind $VLAN
		errors
		prometheus 127.0.0.1:$METRICS
		hcpviews $TENANT.$DOMAIN {
			kubeconfig $KUBECONFIG
			infra clusters/$TENANT
			view vlan
		}
		hcpapps $TENANT.$DOMAIN
		cache
		forward . $UPSTREAM
	}
	.:$DNS {
		bind $POD
		errors
		prometheus 127.0.0.1:$METRICS
		hcpviews $TENANT.$DOMAIN {
			kubeconfig $KUBECONFIG
			infra clusters/$TENANT
			view pod
		}
		hcpapps $TENANT.$DOMAIN
		cache
	}`

// clusterDNSCorefile is the Corefile of a stock CoreDNS that forwards the tenants' zones to the tenants' DNS.
const clusterDNSCorefile = `blue.$DOMAIN:$DNS {
		bind 127.0.0.1
		prometheus 127.0.0.1:$METRICS
		forward . $BLUE
		cache
	}
	green.$DOMAIN:$DNS {
		bind 127.0.0.1
		prometheus 127.0.0.1:$METRICS
		forward . $GREEN
		cache
	}
	.:$DNS {
		bind 127.0.0.1
		prometheus 127.0.0.1:$METRICS
		forward . $UPSTREAM
		cache
	}`

func TestNoForwardingLoopWithClusterDNS(t *testing.T) {
	cp := management.Get(t)
	blue, green := blue, green
	blue.apps = "{enabled: true, source: Static, addresses: [192.0.2.100]}"
	green.apps = "{enabled: false}" // so that its apps names are forwarded
	cp.Create(t, blue.yaml()+green.yaml())
	upstream := newUpstreamResolver(t)
	const blueVLAN, bluePod, greenVLAN, greenPod = "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"
	start := func(name, vlan, pods string) *coredns {
		t.Helper()
		return startCoreDNS(t, tenantCorefile, map[string]string{
			"DOMAIN": domain, "KUBECONFIG": cp.Kubeconfig(), "UPSTREAM": upstream.address, "TENANT": name, "VLAN": vlan, "POD": pods,
		})
	}
	ofBlue, ofGreen := start("blue", blueVLAN, bluePod), start("green", greenVLAN, greenPod)
	central := startCoreDNS(t, clusterDNSCorefile, map[string]string{
		"DOMAIN": domain, "UPSTREAM": upstream.address,
		"BLUE": bluePod + ":" + strconv.Itoa(ofBlue.port), "GREEN": greenPod + ":" + strconv.Itoa(ofGreen.port),
	})
	ofBlue.await(t, question{from: blueVM, to: blueVLAN, name: "api.blue." + domain, want: blue.proxy})
	ofGreen.await(t, question{from: greenVM, to: greenVLAN, name: "api.green." + domain, want: green.proxy})
	central.await(t,
		question{from: pod, name: "api.blue." + domain, want: blue.pod},
		question{from: pod, name: "api.green." + domain, want: green.pod},
	)

	servers := []*coredns{ofBlue, ofGreen, central}
	for _, tc := range []struct {
		server *coredns
		question
		hops string // number of queries to blue's DNS, green's, cluster DNS and the upstream resolver
	}{
		// From a VLAN: names of other zones are forwarded to the upstream resolver, once, and to no other
		// server.
		{ofBlue, question{from: blueVM, to: blueVLAN, name: "typo.blue." + domain, want: nxDomain}, "1 0 0 0"},
		{ofBlue, question{from: blueVM, to: blueVLAN, name: "other." + domain, want: upstreamAnswer}, "1 0 0 1"},
		{ofBlue, question{from: blueVM, to: blueVLAN, name: "www.example.org", want: upstreamAnswer}, "1 0 0 1"},
		{ofBlue, question{from: blueVM, to: blueVLAN, name: "oauth.green." + domain, want: upstreamAnswer}, "1 0 0 1"},
		{ofBlue, question{from: blueVM, to: blueVLAN, name: "typo.green." + domain, want: upstreamAnswer}, "1 0 0 1"},
		{ofGreen, question{from: greenVM, to: greenVLAN, name: "oauth.blue." + domain, want: upstreamAnswer}, "0 1 0 1"},
		{ofGreen, question{from: greenVM, to: greenVLAN, name: "shop.apps.blue." + domain, want: upstreamAnswer}, "0 1 0 1"},
		{ofGreen, question{from: greenVM, to: greenVLAN, name: "shop.apps.green." + domain, want: upstreamAnswer}, "0 1 0 1"},
		{ofGreen, question{from: greenVM, to: greenVLAN, name: "typo.green." + domain, want: nxDomain}, "0 1 0 0"},

		// From a pod through cluster DNS: a tenant's zone ends at that tenant's DNS.
		{central, question{from: pod, name: "oauth.blue." + domain, want: blue.pod}, "1 0 1 0"},
		{central, question{from: pod, name: "oauth.green." + domain, want: green.pod}, "0 1 1 0"},
		{central, question{from: pod, name: "shop.apps.blue." + domain, want: blue.pod}, "1 0 1 0"},
		{central, question{from: pod, name: "shop.apps.green." + domain, want: servFail}, "0 1 1 0"},
		{central, question{from: pod, name: "typo.blue." + domain, want: nxDomain}, "1 0 1 0"},
		{central, question{from: pod, name: "a.typo.green." + domain, want: nxDomain}, "0 1 1 0"},
		{central, question{from: pod, name: "another." + domain, want: upstreamAnswer}, "0 0 1 1"},
		{central, question{from: pod, name: "www.example.com", want: upstreamAnswer}, "0 0 1 1"},
		{central, question{from: pod, name: "typo.blue." + domain, qtype: dns.TypeHTTPS, want: nxDomain}, "1 0 1 0"},

		// From a pod that queries a tenant's DNS for names of other zones: an immediate failure.
		{ofBlue, question{from: pod, to: bluePod, name: "api.green." + domain, want: servFail}, "1 0 0 0"},
		{ofBlue, question{from: pod, to: bluePod, name: "api.green." + domain, qtype: dns.TypeAAAA, want: servFail}, "1 0 0 0"},
		{ofGreen, question{from: pod, to: greenPod, name: "api.blue." + domain, want: servFail}, "0 1 0 0"},
		{ofGreen, question{from: pod, to: greenPod, name: "www.example.net", want: servFail}, "0 1 0 0"},
	} {
		count := func() []int {
			var counts []int
			for _, s := range servers {
				counts = append(counts, int(s.Metric(t, "coredns_dns_requests_total")))
			}
			return append(counts, upstream.total())
		}
		before := count()
		tc.server.expect(t, tc.question)
		lab.Await(t, fmt.Sprintf("%s to cause %s queries at blue's DNS, green's, cluster DNS and the upstream resolver", tc.question, tc.hops), func() string {
			counts := make([]string, 0, len(before)) // a server counts a query after it has sent the reply
			for i, n := range count() {
				counts = append(counts, strconv.Itoa(n-before[i]))
			}
			if hops := strings.Join(counts, " "); hops != tc.hops {
				return "there were " + hops
			}
			return ""
		})
	}
}
