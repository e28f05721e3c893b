package doctor

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSlowResolvers(t *testing.T) {
	histogram := func(to string, seconds float64, answers int) string {
		const metric = "coredns_proxy_request_duration_seconds"
		labels := fmt.Sprintf("{proxy_name=\"forward\",rcode=\"NOERROR\",to=%q", to)
		return fmt.Sprintf("# TYPE %[1]s histogram\n%[1]s_bucket%[2]s,le=\"+Inf\"} %[4]d\n%[1]s_sum%[2]s} %[3]g\n%[1]s_count%[2]s} %[4]d\n", metric, labels, seconds, answers)
	}
	for _, tc := range []struct {
		name, metrics string
		want          []string
	}{
		{"fast", histogram("192.0.2.53:53", 3, 100), []string{}},
		{"few answers", histogram("192.0.2.53:53", 9, 5), []string{}},
		{"slow", histogram("192.0.2.53:53", 45, 30), []string{
			"warn upstream resolver 192.0.2.53 takes 1.5 s to answer: names outside of the hosted cluster resolve slowly or not at all\naverage of 30 answers to Pod dns since it started",
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
