package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHostsWithAnAddressOfAPod has hosts that answer broadcast requests of the replica of the proxy that holds the floating
// address.
func TestHostsWithAnAddressOfAPod(t *testing.T) {
	const other = "02:00:00:00:00:e1"
	answer := func(address, mac, last string) string {
		return fmt.Sprintf(`{"address": %q, "mac": %q, "first": "2026-01-02T03:03:40Z", "last": "2026-01-02T03:%sZ"}`, address, mac, last)
	}
	const floating, standby = "192.0.2.4", "02:00:00:00:00:06"
	floatingConflict := "fail another host on the VLAN, with MAC address " + other + ", answers requests for the floating address 192.0.2.4, as the proxy's replica does\n" +
		"broadcast requests of Pod proxy were answered by " + other + " from 2026-01-02T03:03:40Z to 2026-01-02T03:04:04Z\n"
	for _, tc := range []struct {
		name, holds, created string
		answers              []string
		want                 []string
	}{
		{"each host for its own address", "true", "", []string{answer("192.0.2.3", "02:00:00:00:00:03", "04:04"), answer("192.0.2.1", "02:00:00:00:00:01", "04:04")}, []string{}},
		{"another host for the address of DNS", "true", "", []string{answer("192.0.2.3", "02:00:00:00:00:03", "04:04"), answer("192.0.2.3", other, "04:04")}, []string{
			"fail another host on the VLAN, with MAC address " + other + ", answers requests for address 192.0.2.3 of the pod\nthe pod has MAC address 02:00:00:00:00:03\n" +
				"broadcast requests of Pod proxy were answered by " + other + " from 2026-01-02T03:03:40Z to 2026-01-02T03:04:04Z",
		}},
		{"another host for the floating address", "true", "", []string{answer(floating, other, "04:04")}, []string{floatingConflict + "Pod proxy, with MAC address 02:00:00:00:00:05, has the address"}},
		{"another host and another replica for the floating address", "false", "", []string{answer(floating, standby, "04:03"), answer(floating, other, "04:04")}, []string{
			floatingConflict + "Pod proxy-b, with MAC address " + standby + ", also answered at 2026-01-02T03:04:03Z",
		}},
		{"two replicas for the floating address", "true", "", []string{answer(floating, standby, "04:04")}, []string{}},
		{"a single announcement", "true", "", []string{answer(floating, other, "03:41"), answer("192.0.2.3", other, "03:40")}, []string{}},
		{"a replica that was just replaced", "false", "2026-01-02T03:03:50Z", []string{answer(floating, other, "04:04")}, []string{}},
		{"another host for the address of a VM", "true", "", []string{answer("192.0.2.10", other, "04:04"), answer("192.0.2.10", "02:00:00:00:00:10", "04:04")}, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := `{"mac": "02:00:00:00:00:05", "addresses": ["192.0.2.4"], "holding": ` + tc.holds + `, "peers": {"` + standby + `": "proxy-b"}, "answers": [` + strings.Join(tc.answers, ", ") + `]}`
			var pods []string
			if tc.created != "" {
				pods = append(pods, strings.NewReplacer("name: proxy,", "name: proxy-b, creationTimestamp: '"+tc.created+"',", "podIP: 198.18.0.1", "").Replace(podText("clusters", "proxy")))
			}
			got := findingsOn(t, "OOOI-LNK-005", map[page]string{holderState: state}, pods...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPodsThatHearNobody has pods on one node that no host answers, and others of which only one is silent.
func TestPodsThatHearNobody(t *testing.T) {
	metrics := func(prefix string, answers map[string]bool) string {
		text := "# TYPE " + prefix + "_vlan_neighbor gauge\n"
		for _, last := range []string{"2", "3", "5"} {
			if up, probed := answers[last]; probed && up {
				text += fmt.Sprintf("%s_vlan_neighbor{address=\"192.0.2.%s\",mac=\"02:00:00:00:00:0%s\"} 1\n", prefix, last, last)
			} else if probed {
				text += fmt.Sprintf("%s_vlan_neighbor{address=\"192.0.2.%s\",mac=\"\"} 0\n", prefix, last)
			}
		}
		return text
	}
	gone := func(prefix string) string { // hosts that answered once
		hosts, last := "# TYPE P_vlan_host gauge\n", "# TYPE P_vlan_neighbor_last_answer_timestamp_seconds gauge\n"
		for _, address := range []string{"192.0.2.77", "192.0.2.78"} {
			hosts += fmt.Sprintf("P_vlan_host{address=%q,mac=\"\"} 0\n", address)
			last += fmt.Sprintf("P_vlan_neighbor_last_answer_timestamp_seconds{address=%q,mac=\"02:00:00:00:00:e1\",by=\"icmp\"} 1767322800\n", address)
		}
		return strings.ReplaceAll(hosts+last, "P_", prefix+"_")
	}
	type answers = map[string]bool
	const alone = "fail no host on the VLAN answers ARP requests of the pod, although its interface is up: the pod is on another VLAN or bridge, or a filter drops its packets\nno answer: 192.0.2.2, 192.0.2.3"
	const detached = ", which do not answer each other either, although their interfaces are up: their ports are probably no longer attached to the bridge"
	for _, tc := range []struct {
		name             string
		dhcp, dns, proxy answers
		want             []string
	}{
		{"none", answers{"3": true, "5": true}, answers{"2": true, "5": true}, answers{"2": true, "3": true}, []string{}},
		{"all", answers{"3": false, "5": false}, answers{"2": false, "5": false}, answers{"2": false, "3": false}, []string{"fail no host on the VLAN answers Pods dhcp, dns, proxy" + detached}},
		{"other hosts, and our pods are not probed", nil, nil, nil, []string{}},
		{"proxy", answers{"3": true, "5": false}, answers{"2": true, "5": false}, answers{"2": false, "3": false}, []string{alone}},
		{"proxy, and DNS is known to DHCP only", answers{"3": true, "5": false}, answers{"5": false}, answers{"2": false, "3": false}, []string{alone}},
		{"DNS and proxy, and DHCP still has their MAC addresses", answers{"3": true, "5": true}, answers{"2": false, "5": false}, answers{"2": false, "3": false}, []string{"fail no host on the VLAN answers Pods dns, proxy" + detached}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pages := map[page]string{dhcpMetrics: metrics("coredhcp", tc.dhcp), dnsMetrics: metrics("coredns", tc.dns), xdsdMetrics: metrics("xdsd", tc.proxy)}
			if tc.dns == nil {
				pages = map[page]string{dhcpMetrics: gone("coredhcp"), dnsMetrics: gone("coredns"), xdsdMetrics: gone("xdsd")}
			}
			got := findingsOn(t, "OOOI-LNK-004", pages)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
