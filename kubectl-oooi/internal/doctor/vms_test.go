package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// leasedVMText returns a running VM on a node and the Lease of its address 192.0.2.N.
func leasedVMText(n int, node string) []string {
	return []string{
		fmt.Sprintf("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: worker-%d, namespace: clusters-demo, creationTimestamp: \"2026-01-02T02:00:00Z\"}, status: {phase: Running, nodeName: %s}}", n, node),
		fmt.Sprintf("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: clusters.demo.192.0.2.%[1]d, namespace: clusters, labels: {leasedb.densityops.com/pool: clusters.demo, leasedb.densityops.com/mac: 02-00-00-00-00-%[1]d}}, spec: {holderIdentity: clusters-demo/worker-%[1]d/vlan, renewTime: \"2026-01-02T02:00:00.000000Z\"}}", n),
	}
}

// clock returns the Unix time of a clock on the day of findingsOn, which is at 03:04:05.
func clock(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.DateTime, "2026-01-02 "+text)
	if err != nil {
		t.Fatal(err)
	}
	return at.Unix()
}

func TestAnswersOfVMs(t *testing.T) {
	// seen returns the metrics of coredhcp for VM 192.0.2.N: since when it has answered or not, and its last answer.
	seen := func(n int, since, last, by string, answers bool) string {
		value := 0
		if answers {
			value = 1
		}
		return fmt.Sprintf("coredhcp_vlan_neighbor{address=\"192.0.2.%[1]d\",mac=\"02:00:00:00:00:%[1]d\"} %[2]d\ncoredhcp_vlan_neighbor_since_timestamp_seconds{address=\"192.0.2.%[1]d\"} %[3]d\n", n, value, clock(t, since)) +
			fmt.Sprintf("coredhcp_vlan_neighbor_last_answer_timestamp_seconds{address=\"192.0.2.%[1]d\",mac=\"02:00:00:00:00:%[1]d\",by=%[2]q} %[3]d\n", n, by, clock(t, last))
	}
	pod := fmt.Sprintf("coredhcp_vlan_neighbor{address=\"192.0.2.3\",mac=\"02:00:00:00:00:03\"} 1\ncoredhcp_vlan_neighbor_last_answer_timestamp_seconds{address=\"192.0.2.3\",mac=\"02:00:00:00:00:03\",by=\"icmp\"} %d\n", clock(t, "03:04:00"))
	silent := func(n int) string { return seen(n, "03:02:50", "03:02:50", "icmp", false) }
	refusing := func(n int) string { return seen(n, "03:00:00", "03:02:50", "icmp", true) }
	answering := func(n int) string { return seen(n, "03:00:00", "03:04:00", "icmp", true) }
	const evidence = "\nVM clusters-demo/worker-10, 192.0.2.10: last answer at 2026-01-02T03:02:50Z to Pod dhcp, of MAC address 02:00:00:00:00:10; none to Pod dhcp" +
		"\nVM clusters-demo/worker-11, 192.0.2.11: last answer at 2026-01-02T03:02:50Z to Pod dhcp, of MAC address 02:00:00:00:00:11; none to Pod dhcp"
	const noARP = "fail 2 running VMs with a lease no longer answer ARP requests of our pods, and no other VM on node one does" + evidence
	const noIP = "warn 2 running VMs with a lease answer ARP requests of our pods, but no longer IP packets, and no other VM on node one does: a filter drops IP packets between them" + evidence
	for _, tc := range []struct {
		name  string
		pages string
		nodes [3]string
		want  []string
	}{
		{"both are silent", silent(10) + silent(11), [3]string{"one", "one"}, []string{noARP}},
		{"those on one node are silent", silent(10) + silent(11) + answering(12), [3]string{"one", "one", "two"}, []string{noARP + "\n192.0.2.12 answers Pod dhcp; connections keep the MAC address of a host valid without ARP"}},
		{"another one on the node answers", silent(10) + silent(11) + answering(12), [3]string{"one", "one", "one"}, []string{}},
		{"one is silent", silent(10) + answering(11), [3]string{"one", "one"}, []string{}},
		{"they have just become silent", seen(10, "03:03:30", "03:03:30", "icmp", false) + seen(11, "03:03:30", "03:03:30", "icmp", false), [3]string{"one", "one"}, []string{}},
		{"they have not answered since they were created", seen(10, "01:00:00", "01:00:00", "icmp", false) + seen(11, "01:00:00", "01:00:00", "icmp", false), [3]string{"one", "one"}, []string{}},
		{"both answer ARP requests only", refusing(10) + refusing(11), [3]string{"one", "one"}, []string{noIP}},
		{"one answers ARP requests only", refusing(10) + answering(11), [3]string{"one", "one"}, []string{}},
		{"they never refuse datagrams", seen(10, "03:00:00", "03:04:00", "arp", true) + seen(11, "03:00:00", "03:04:00", "arp", true), [3]string{"one", "one"}, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var objects []string
			for i, node := range tc.nodes {
				if node != "" {
					objects = append(objects, leasedVMText(10+i, node)...)
				}
			}
			if diff := cmp.Diff(tc.want, findingsOn(t, "OOOI-LNK-012", map[page]string{dhcpMetrics: sortMetrics(pod + tc.pages)}, objects...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPacketSizes(t *testing.T) {
	seen := func(n, size int) string {
		return fmt.Sprintf("coredhcp_vlan_host{address=\"192.0.2.%[1]d\",mac=\"02:00:00:00:00:%[1]d\"} 1\ncoredhcp_vlan_neighbor_since_timestamp_seconds{address=\"192.0.2.%[1]d\"} %[2]d\n", n, clock(t, "03:00:00")) +
			fmt.Sprintf("coredhcp_vlan_neighbor_last_answer_timestamp_seconds{address=\"192.0.2.%[1]d\",mac=\"02:00:00:00:00:%[1]d\",by=\"icmp\"} %[2]d\ncoredhcp_vlan_packet_bytes{address=\"192.0.2.%[1]d\"} %[3]d\n", n, clock(t, "03:04:00"), size)
	}
	const own = "oooi_interface_up{interface=\"net1\"} 1\noooi_interface_mtu_bytes{interface=\"net1\"} 1500\n"
	for _, tc := range []struct {
		name, metrics string
		want          []string
	}{
		{"all are received", seen(10, 1500) + seen(11, 1500), []string{}},
		{"large ones are lost", seen(10, 1400) + seen(11, 1280), []string{
			"fail packets of our pods of more than 1400 bytes are lost on the way to other hosts on the VLAN, although the pods' interfaces have MTU 1500: TLS handshakes with large certificates time out\n" +
				"192.0.2.10 receives packets of Pod dhcp of 1400 bytes, but not of 1500\n192.0.2.11 receives packets of Pod dhcp of 1280 bytes, but not of 1500",
		}},
		{"one host receives large ones", seen(10, 1400) + seen(11, 1280) + seen(12, 1500), []string{}},
		{"a single host", seen(10, 1400), []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, findingsOn(t, "OOOI-LNK-013", map[page]string{dhcpMetrics: sortMetrics(own + tc.metrics)})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTakenAddresses(t *testing.T) {
	answers := func(mac string) string {
		return fmt.Sprintf("coredhcp_vlan_neighbor{address=\"192.0.2.10\",mac=%q} 1\n", mac)
	}
	const vm, other, device = "02:00:00:00:00:10", "02:00:00:00:00:11", "02:00:00:00:00:e1"
	const state = `{"kubevirt": {"clients": [{"mac": "02:00:00:00:00:10", "interface": "clusters-demo/worker-10/vlan"}, {"mac": "02:00:00:00:00:11", "interface": "clusters-demo/worker-11/vlan"}, {"mac": "02:00:00:00:00:12", "interface": "clusters-demo/worker-10/second"}]}}`
	const leased = " uses 192.0.2.10, which is leased to VM clusters-demo/worker-10 with MAC address 02:00:00:00:00:10: packets to the client go to the other host\n"
	alternating := answers(vm) + fmt.Sprintf("coredhcp_vlan_neighbor_alternating{address=\"192.0.2.10\",mac=%q,other=%q} 1\n", vm, device) +
		fmt.Sprintf("coredhcp_vlan_neighbor_changed_timestamp_seconds{address=\"192.0.2.10\",mac=%q,previous=%q} 1767323000\n", vm, device)
	for _, tc := range []struct {
		name, metrics string
		want          []string
	}{
		{"the VM answers", answers(vm), []string{}},
		{"another interface of the VM answers", answers("02:00:00:00:00:12"), []string{}},
		{"a device answers", answers(device), []string{"fail another host, with MAC address " + device + "," + leased + device + " answers ARP requests of Pod dhcp for 192.0.2.10"}},
		{"another VM answers", answers(other), []string{"fail another host, with MAC address " + other + " (VM interface clusters-demo/worker-11/vlan)," + leased + other + " answers ARP requests of Pod dhcp for 192.0.2.10"}},
		{"both answer in turn", alternating, []string{"fail another host, with MAC address " + device + "," + leased + device + " answers ARP requests of Pod dhcp for 192.0.2.10, in turn with another host, until 2026-01-02T03:03:20Z at least"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pages := map[page]string{dhcpMetrics: sortMetrics(tc.metrics), dhcpState: state}
			if diff := cmp.Diff(tc.want, findingsOn(t, "OOOI-DHCP-004", pages, leasedVMText(10, "one")...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAlternatingAppsAddress has an apps address for which two hosts answer, and a floating one, which moves.
func TestAlternatingAppsAddress(t *testing.T) {
	const metric = "xdsd_vlan_neighbor_alternating{address=\"A\",mac=\"02:00:00:00:00:20\",other=\"02:00:00:00:00:e1\"} 1\n"
	for address, want := range map[string][]string{
		"192.0.2.4":   {},
		"192.0.2.200": {"fail two hosts on the VLAN have apps address 192.0.2.200, and answer in turn: MAC address 02:00:00:00:00:20 and MAC address 02:00:00:00:00:e1\nrequested by Pod proxy"},
	} {
		got := findingsOn(t, "OOOI-LNK-005", map[page]string{xdsdMetrics: sortMetrics(strings.Replace(metric, "A", address, 1))})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", address, diff)
		}
	}
}
