package doctor

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSlowResolvers(t *testing.T) {
	lately := func(to string, seconds float64, answers int) string {
		return fmt.Sprintf("# TYPE coredns_oooi_upstream_answers gauge\ncoredns_oooi_upstream_answers{to=%[1]q} %[3]d\n"+
			"# TYPE coredns_oooi_upstream_answer_seconds gauge\ncoredns_oooi_upstream_answer_seconds{to=%[1]q} %[2]g\n", to, seconds, answers)
	}
	for _, tc := range []struct {
		name, metrics string
		want          []string
	}{
		{"fast", lately("192.0.2.53:53", 0.03, 100), []string{}},
		{"few answers", lately("192.0.2.53:53", 1.8, 4), []string{}},
		{"slow", lately("192.0.2.53:53", 1.5, 30), []string{
			"warn upstream resolver 192.0.2.53 takes 1.5 s to answer: names outside of the hosted cluster resolve slowly or not at all\naverage of the last 30 answers to Pod dns, within a minute",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := findingsOn(t, "OOOI-DNS-007", map[page]string{dnsMetrics: dnsMetrics.prune(tc.metrics)})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSlowProcesses loses queries on the VLAN, and cannot read the page of the DNS server.
func TestSlowProcesses(t *testing.T) {
	lossy := "# TYPE xdsd_vlan_dns_queries gauge\nxdsd_vlan_dns_queries{address=\"192.0.2.3\"} 80\n" +
		"# TYPE xdsd_vlan_dns_lost_queries gauge\nxdsd_vlan_dns_lost_queries{address=\"192.0.2.3\"} 14\n"
	const lost = "Pod proxy: 14 of 80 queries to 192.0.2.3 were lost within a minute"
	for _, tc := range []struct{ page, want string }{
		{"", "fail packets between the pod and Pod proxy are lost on the VLAN: 14 of 80 DNS queries had no reply\n" + lost},
		{noAnswer, "fail the process of DNS answers late or not at all: 14 of 80 queries had no reply, and its page /metrics cannot be read\n" + lost + "\n" + noAnswer},
	} {
		got := findingsOn(t, "OOOI-LNK-008", map[page]string{xdsdMetrics: lossy, dnsMetrics: tc.page})
		if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
			t.Error(diff)
		}
	}
}
