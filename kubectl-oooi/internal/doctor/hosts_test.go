package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestIsolation has hosts that answer DHCP for some time and do not answer DNS. The pages are from 03:04:05.
func TestIsolation(t *testing.T) {
	const gateway, vm = "192.0.2.1", "192.0.2.10"
	// seen returns the metrics of a host: since when it has answered or not, and its last answer, empty for none.
	seen := func(prefix, address, since, last, by string, answers bool) string {
		kind, value, mac := "host", 0, ""
		if address == gateway {
			kind = "neighbor"
		}
		if answers {
			value, mac = 1, "02:00:00:00:00:10"
		}
		at := func(clock string) int64 {
			parsed, err := time.Parse(time.DateTime, "2026-01-02 "+clock)
			if err != nil {
				t.Fatal(err)
			}
			return parsed.Unix()
		}
		text := fmt.Sprintf("P_vlan_%s{address=%q,mac=%q} %d\nP_vlan_neighbor_since_timestamp_seconds{address=%q} %d\n", kind, address, mac, value, address, at(since))
		if last != "" {
			text += fmt.Sprintf("P_vlan_neighbor_last_answer_timestamp_seconds{address=%q,mac=\"02:00:00:00:00:10\",by=%q} %d\n", address, by, at(last))
		}
		return strings.ReplaceAll(text, "P_", prefix+"_")
	}
	const found = "fail the pod reaches our pods and none of the other hosts on the VLAN, of which other pods of ours reach 1: packets between its port and the ports of these hosts are dropped\n" +
		"192.0.2.10 (MAC address 02:00:00:00:00:10) answers Pod dhcp on node node1, and answered the pod last at 2026-01-02T03:03:00Z"
	silent := seen("coredns", vm, "03:03:00", "03:03:00", "icmp", false)
	for _, tc := range []struct {
		name, dns, dhcp string
		want            []string
	}{
		{"the VM does not answer DNS", silent, seen("coredhcp", vm, "03:00:00", "03:04:00", "icmp", true), []string{found}},
		{"it answers DHCP only by the kernel's entry", silent, seen("coredhcp", vm, "03:00:00", "03:04:00", "arp", true), []string{}},
		{"it may be gone for DHCP as well", silent, seen("coredhcp", vm, "03:00:00", "03:03:20", "icmp", true), []string{}},
		{"it is gone, and another host still answers DHCP", silent, seen("coredhcp", vm, "03:02:00", "03:03:50", "icmp", true) + seen("coredhcp", gateway, "03:00:00", "03:04:26", "icmp", true), []string{}},
		{"it has just started", silent, seen("coredhcp", vm, "03:03:50", "03:04:00", "icmp", true), []string{}},
		{"it answers neither", silent, seen("coredhcp", vm, "03:02:50", "03:02:50", "icmp", false), []string{}},
		{"it answers both", seen("coredns", vm, "03:00:00", "03:04:00", "icmp", true), seen("coredhcp", vm, "03:00:00", "03:04:00", "icmp", true), []string{}},
		{"DNS does not know it", "", seen("coredhcp", vm, "03:00:00", "03:04:00", "icmp", true), []string{}},
		{"the gateway has never answered DNS", seen("coredns", gateway, "03:00:00", "", "", false) + seen("coredns", vm, "03:00:00", "03:04:00", "icmp", true), seen("coredhcp", gateway, "03:00:00", "03:04:00", "icmp", true), []string{
			strings.NewReplacer("none of the other hosts on the VLAN, of which other pods of ours reach 1", "1 of the other hosts on the VLAN, but not 1 that other pods of ours reach", vm, gateway, "answered the pod last at 2026-01-02T03:03:00Z", "has never answered the pod").Replace(found),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := findingsOn(t, "OOOI-LNK-009", map[page]string{dnsMetrics: sortMetrics(tc.dns), dhcpMetrics: sortMetrics(tc.dhcp)})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// sortMetrics groups lines of metrics by their names, as the text format requires.
func sortMetrics(text string) string {
	var names []string
	byName := map[string]string{}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "{")
		if byName[name] == "" {
			names = append(names, name)
		}
		byName[name] += line
	}
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "# TYPE %s gauge\n%s", name, byName[name])
	}
	return b.String()
}

func TestPortsOfTheProxy(t *testing.T) {
	port := func(number int, result string) string {
		return fmt.Sprintf("coredns_vlan_port{address=\"192.0.2.5\",port=\"%d\",result=%q} 0\n", number, result)
	}
	const message = "fail the proxy's address 192.0.2.5 accepts no connections over the VLAN at TCP port 6443: a filter "
	const evidence = "\nconnections of Pod dns to 192.0.2.5:6443: "
	for _, tc := range []struct {
		name, metrics string
		want          []string
	}{
		{"accepted", port(443, "accepted") + port(6443, "accepted"), []string{}},
		{"dropped", port(443, "accepted") + port(6443, "timeout"), []string{message + "drops them, since those to port 443 are accepted" + evidence + "timeout"}},
		{"rejected", port(443, "accepted") + port(6443, "refused"), []string{message + "rejects them, since those to port 443 are accepted" + evidence + "refused"}},
		{"no port is accepted", port(6443, "timeout"), []string{message + "drops them, although the host answers ARP requests" + evidence + "timeout"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, findingsOn(t, "OOOI-LNK-010", map[page]string{dnsMetrics: sortMetrics(tc.metrics)})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUnfinishedHandshakes(t *testing.T) {
	unfinished := func(address, client string, connections int) string {
		return fmt.Sprintf(`{"address": %q, "client": %q, "connections": %d}`, address, client, connections)
	}
	const message = "fail connections of %s to TCP port %s do not complete: the proxy repeats its answer to their first packet, and receives no reply"
	for _, tc := range []struct {
		name  string
		state []string
		want  []string
	}{
		{"one client", []string{unfinished("192.0.2.5:6443", "192.0.2.10", 3)}, []string{fmt.Sprintf(message, "192.0.2.10", "6443") + "\nunfinished connections of 192.0.2.10 to 192.0.2.5:6443: 3"}},
		{"several", []string{unfinished("192.0.2.5:443", "192.0.2.10", 2), unfinished("192.0.2.5:443", "192.0.2.11", 1), unfinished("192.0.2.5:6443", "192.0.2.10", 1)},
			[]string{fmt.Sprintf(message, "2 hosts, such as 192.0.2.10,", "443, 6443") + "\nunfinished connections of 192.0.2.10 to 192.0.2.5:443: 2\nunfinished connections of 192.0.2.11 to 192.0.2.5:443: 1\nunfinished connections of 192.0.2.10 to 192.0.2.5:6443: 1"}},
		{"a client was switched off", []string{unfinished("192.0.2.5:6443", "192.0.2.10", 2)}, []string{}},
		{"in the pod network", []string{unfinished("10.0.0.5:6443", "192.0.2.10", 3)}, []string{}},
		{"of our own pods", []string{unfinished("192.0.2.5:6443", "192.0.2.3", 3)}, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pages := map[page]string{xdsdState: `{"unfinished": [` + strings.Join(tc.state, ", ") + `]}`}
			if diff := cmp.Diff(tc.want, findingsOn(t, "OOOI-LNK-016", pages)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDivertedRoutes(t *testing.T) {
	route := func(gateway, device string) map[page]string {
		return map[page]string{dnsMetrics: sortMetrics(fmt.Sprintf("oooi_interface_diverted_route{interface=\"net1\",destination=\"192.0.2.128/25\",gateway=%q,device=%q} 1\n", gateway, device))}
	}
	const network = `{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: demo-dns, namespace: clusters, labels: {app.kubernetes.io/component: dns}},
		spec: {config: '{"ipam": {"routes": [{"dst": "192.0.2.128/25"}]}}'}}`
	const message = "fail a route of the pod diverts packets to 192.0.2.128/25, which is on the VLAN: they "
	for _, tc := range []struct{ name, gateway, device, object, want string }{
		{"gateway", "192.0.2.9", "net1", "", message + "leave through gateway 192.0.2.9 on interface net1"},
		{"another interface", "", "eth0", "", message + "leave through interface eth0"},
		{"discarded", "", "", "", message + "are discarded"},
		{"of the network", "192.0.2.9", "net1", network, "fail spec.config has a route that diverts packets of Pod dns to 192.0.2.128/25, which is on the VLAN: they leave through gateway 192.0.2.9 on interface net1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var objects []string
			if tc.object != "" {
				objects = append(objects, tc.object)
			}
			if diff := cmp.Diff([]string{tc.want}, findingsOn(t, "OOOI-LNK-011", route(tc.gateway, tc.device), objects...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestHostsWithTheMACAddressOfAPod has a host with the MAC address of the proxy, and a client of DHCP with that of DNS.
func TestHostsWithTheMACAddressOfAPod(t *testing.T) {
	metrics := "# TYPE coredns_vlan_host gauge\ncoredns_vlan_host{address=\"192.0.2.77\",mac=\"02:00:00:00:00:05\"} 1\n" +
		"# TYPE coredns_vlan_neighbor_since_timestamp_seconds gauge\ncoredns_vlan_neighbor_since_timestamp_seconds{address=\"192.0.2.77\"} 1767322800\n"
	state := `{"kubevirt": {"unknown": [{"mac": "02:00:00:00:00:03", "last": "2026-01-02T03:04:00Z"}, {"mac": "02:00:00:00:00:09", "last": "2026-01-02T03:04:00Z"}]}}`
	got := findingsOn(t, "OOOI-LNK-005", map[page]string{dnsMetrics: metrics, dhcpState: state})
	want := []string{
		"fail another host on the VLAN has the MAC address 02:00:00:00:00:03 of the pod: the switch sends the packets of both to the one that sent last\nit requested an address from DHCP at 2026-01-02T03:04:00Z",
		"fail another host on the VLAN has the MAC address 02:00:00:00:00:05 of the pod: the switch sends the packets of both to the one that sent last\nit answers ARP requests of Pod dns for 192.0.2.77, which is no address of the pod",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
