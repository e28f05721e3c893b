package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// noAnswer is the body of a page that cannot be read.
const noAnswer = "no answer within 4s"

// findingsOn returns the findings of a check without what it depends on, each as "severity message" and its evidence, if
// the pods of fuzzObjects return pages. Pods have an address on the VLAN by component.
func findingsOn(t *testing.T, code string, pages map[page]string, objects ...string) []string {
	t.Helper()
	facts := NewFacts(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for _, text := range slices.Concat(objects, fuzzObjects) { // the first one of a name counts
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		if address := map[string]string{"dhcp": "192.0.2.2", "dns": "192.0.2.3", "proxy": "192.0.2.5"}[u.GetName()]; u.GetKind() == "Pod" && address != "" {
			u.SetAnnotations(map[string]string{"k8s.v1.cni.cncf.io/network-status": `[{"name": "x", "interface": "net1", "mac": "02:00:00:00:00:0` + address[len(address)-1:] + `", "ips": ["` + address + `"]}]`})
			if err := unstructured.SetNestedField(u.Object, "node1", "spec", "nodeName"); err != nil {
				t.Fatal(err)
			}
			ready := []any{map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:00:00Z"}}
			if err := unstructured.SetNestedSlice(u.Object, ready, "status", "conditions"); err != nil {
				t.Fatal(err)
			}
		}
		facts.add(u)
	}
	for _, namespace := range []string{"clusters", "oooi-system"} {
		for _, p := range []page{dnsMetrics, dhcpState, dhcpMetrics, xdsdState, xdsdMetrics, envoyMetrics, controlState, holderState} {
			body := pages[p]
			if body == "" && !p.metrics() {
				body = "{}"
			}
			a := &Answer{Namespace: namespace, Pod: p.component, Component: p.component, Port: p.port, Path: p.path, Body: p.prune(body)}
			if body == noAnswer {
				a.Body, a.Silent = "", noAnswer
			}
			facts.answers[a.key()] = a
		}
	}
	checks := orderedChecks(t)
	c := checks[slices.IndexFunc(checks, func(c Check) bool { return c.Code == code })]
	c.Needs, c.After = nil, nil
	r := run(NewSite(facts, "clusters/demo"), &c, nil)
	if r.Status == Skipped || r.Status == Broken {
		t.Fatalf("%s: %s %s", code, r.Status, r.Reason)
	}
	list := []string{}
	for _, f := range r.Findings {
		list = append(list, strings.Join(append([]string{string(f.Severity) + " " + f.Message}, f.Evidence...), "\n"))
	}
	return list
}

func TestFailedLeaseStoreOperations(t *testing.T) {
	state := func(operations string) map[page]string {
		return map[page]string{dhcpState: `{"leasedb": [{"pool": "clusters.demo", "read": "2026-01-02T03:04:05Z", "operations": {` + operations + `}}]}`}
	}
	const fails = `"error": "failed calling webhook", "failed": `
	for _, tc := range []struct {
		name, operations string
		want             []string
	}{
		{"no operation", "", []string{}},
		{"success", `"put": {"succeeded": "2026-01-02T03:00:00Z"}`, []string{}},
		{"the last one failed", `"put": {"succeeded": "2026-01-02T03:00:00Z", ` + fails + `"2026-01-02T03:00:01Z"}`, []string{
			"fail lease store operations of type put fail: clients without an address may get none\n2026-01-02T03:00:01Z: failed calling webhook\nthe last success was at 2026-01-02T03:00:00Z",
		}},
		{"none has succeeded", `"put": {` + fails + `"2026-01-02T03:04:00Z"}`, []string{
			"fail lease store operations of type put fail: clients without an address may get none\n2026-01-02T03:04:00Z: failed calling webhook",
		}},
		{"one has succeeded after a failure", `"put": {"succeeded": "2026-01-02T03:04:00Z", ` + fails + `"2026-01-02T03:03:00Z"}`, []string{
			"warn a lease store operation of type put has failed within the last 2 minutes, and another one has succeeded since\n2026-01-02T03:03:00Z: failed calling webhook\nthe last success was at 2026-01-02T03:04:00Z",
		}},
		{"it has succeeded for the same client since", `"put": {"succeeded": "2026-01-02T03:04:00Z", "repeated": "2026-01-02T03:03:30Z", ` + fails + `"2026-01-02T03:03:00Z"}`, []string{}},
		{"it has failed again since it succeeded for the same client", `"put": {"repeated": "2026-01-02T03:02:00Z", ` + fails + `"2026-01-02T03:04:00Z"}`, []string{
			"fail lease store operations of type put fail: clients without an address may get none\n2026-01-02T03:04:00Z: failed calling webhook",
		}},
		{"one has succeeded after a failure long ago", `"put": {"succeeded": "2026-01-02T03:01:00Z", ` + fails + `"2026-01-02T03:00:00Z"}`, []string{}},
		{"the last one failed long ago", `"delete": {` + fails + `"2026-01-02T02:00:00Z"}`, []string{
			"warn the last lease store operation of type delete has failed, and none has succeeded since\n2026-01-02T02:00:00Z: failed calling webhook",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, findingsOn(t, "OOOI-DHCP-012", state(tc.operations))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNoLeaderNamesTheErrorOfTheLease(t *testing.T) {
	got := findingsOn(t, "OOOI-CTL-004", map[page]string{controlState: `{"election": "2026-01-02T03:04:00Z: failed calling webhook", "store": {"synced": true}}`})
	want := []string{"fail none of 1 replicas of control leads: no status is written, and the apps address is not reconciled\nPod control: Lease oooi-system/oooi-control: 2026-01-02T03:04:00Z: failed calling webhook"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyOurPodsAnswerOnTheVLAN(t *testing.T) {
	const (
		pods    = "P_vlan_neighbor{address=\"192.0.2.3\",mac=\"02:00:00:00:00:03\"} 1\n"
		gateway = "P_vlan_neighbor{address=\"192.0.2.1\",mac=\"\"} 0\n"
		apps    = "P_vlan_neighbor{address=\"192.0.2.200\",mac=\"\"} 0\n"
		vm      = "P_vlan_neighbor{address=\"192.0.2.10\",mac=\"\"} 0\n"
		vmMAC   = "02:00:00:00:00:10"
	)
	answered := func(address, mac string) string {
		return "P_vlan_neighbor_last_answer_timestamp_seconds{address=\"" + address + "\",mac=\"" + mac + "\"} 1767323000\n"
	}
	appsAnswered, vmAnswered := answered("192.0.2.200", "02:00:00:00:00:20"), answered("192.0.2.10", vmMAC)
	lines := func(prefix string, texts ...string) string {
		text := strings.ReplaceAll(strings.Join(texts, ""), "P_", prefix+"_")
		var neighbors, times string
		for line := range strings.Lines(text) {
			if strings.Contains(line, "_timestamp_seconds") {
				times += line
			} else {
				neighbors += line
			}
		}
		return "# TYPE " + prefix + "_vlan_neighbor gauge\n" + neighbors + "# TYPE " + prefix + "_vlan_neighbor_last_answer_timestamp_seconds gauge\n" + times
	}
	const message = "fail only our own pods answer on the VLAN: the uplink of their node to the VLAN is down, or is in another VLAN"
	evidence := func(address, mac string) string {
		return "\n" + address + " no longer answers: last answer at 2026-01-02T03:03:20Z, of MAC address " + mac
	}
	for _, tc := range []struct {
		name       string
		xdsd, dhcp []string
		want       []string
	}{
		{"apps address and VM are silent", []string{pods, gateway, apps, appsAnswered}, []string{pods, gateway, vm, vmAnswered}, []string{
			message + evidence("192.0.2.10", vmMAC) + evidence("192.0.2.200", "02:00:00:00:00:20"),
		}},
		{"the VM had the apps address", []string{pods, gateway, apps, answered("192.0.2.200", vmMAC)}, []string{pods, vm, vmAnswered}, []string{
			message + ", or the only other host is down" + evidence("192.0.2.10", vmMAC) + evidence("192.0.2.200", vmMAC),
		}},
		{"only the apps address is silent, and the gateway never answered", []string{pods, gateway, apps, appsAnswered}, []string{pods, gateway}, []string{}},
		{"the VM answers", []string{pods, gateway, apps, appsAnswered, answered("192.0.2.1", "02:00:00:00:00:01")}, []string{pods, strings.Replace(strings.Replace(vm, "0\n", "1\n", 1), "mac=\"\"", "mac=\""+vmMAC+"\"", 1)}, []string{}},
		{"none has ever answered", []string{pods, gateway, apps}, []string{pods, gateway, vm}, []string{}},
		{"our pods do not answer either", []string{apps, appsAnswered}, []string{vm, vmAnswered}, []string{}},
		{"a pod is silent", []string{pods, strings.Replace(apps, "192.0.2.200", "192.0.2.2", 1), answered("192.0.2.2", "02:00:00:00:00:02"), apps, appsAnswered}, nil, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := findingsOn(t, "OOOI-LNK-007", map[page]string{xdsdMetrics: lines("xdsd", tc.xdsd...), dhcpMetrics: lines("coredhcp", tc.dhcp...)})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUnreachedBackends(t *testing.T) {
	const envoy = "# TYPE envoy_cluster_membership_total gauge\nenvoy_cluster_membership_total{envoy_cluster_name=\"%[1]s\"} 1\n" +
		"# TYPE envoy_cluster_membership_healthy gauge\nenvoy_cluster_membership_healthy{envoy_cluster_name=\"%[1]s\"} 0\n"
	const state = `{"proxyServers": [{"upstreams": [{"name": "infra/clusters/demo/apps-https", "fromVLAN": true, "addresses": ["192.0.2.200:443"]}, {"name": "clusters-demo/oauth/6443", "service": "clusters-demo/oauth"}, {"name": "clusters-demo/konnectivity/8091", "service": "clusters-demo/konnectivity"}]}],
		"backends": [{"upstream": "clusters-demo/konnectivity/8091", "name": "k.example.com", "address": "198.18.0.8:8091", "interface": "INTERFACE", "error": "dial tcp 198.18.0.8:8091: connect: no route to host"}, {"upstream": "clusters-demo/oauth/6443", "name": "oauth.example.com", "address": "198.18.0.9:6443", "error": "dial tcp 198.18.0.9:6443: i/o timeout"}]}`
	neighbor := func(mac, value string) string {
		return "# TYPE xdsd_vlan_neighbor gauge\nxdsd_vlan_neighbor{address=\"192.0.2.200\",mac=\"" + mac + "\"} " + value + "\n"
	}
	// silent returns the metrics of the apps address, which is silent since 03:03:00, and of a host that answered last at a time.
	silent := func(last, by string) string {
		at, err := time.Parse(time.DateTime, "2026-01-02 "+last)
		if err != nil {
			t.Fatal(err)
		}
		since := time.Date(2026, 1, 2, 3, 3, 0, 0, time.UTC).Unix()
		return sortMetrics("xdsd_vlan_neighbor{address=\"192.0.2.200\",mac=\"\"} 0\nxdsd_vlan_host{address=\"192.0.2.10\",mac=\"02:00:00:00:00:10\"} 1\n" + fmt.Sprintf("xdsd_vlan_neighbor_since_timestamp_seconds{address=\"192.0.2.200\"} %d\nxdsd_vlan_neighbor_since_timestamp_seconds{address=\"192.0.2.10\"} 1767323000\n", since) +
			fmt.Sprintf("xdsd_vlan_neighbor_last_answer_timestamp_seconds{address=\"192.0.2.10\",mac=\"02:00:00:00:00:10\",by=%q} %d\n", by, at.Unix()))
	}
	const noHost = "fail no host on the VLAN answers ARP requests for 192.0.2.200: MetalLB does not announce it, or the nodes of the hosted cluster are not connected to this VLAN"
	const uncertain = "fail apps address 192.0.2.200 accepts no connections at port 443\nno host answers ARP requests of the pod for the address, and our pods do not know yet whether other hosts on the VLAN still answer"
	const closed = "# TYPE xdsd_vlan_port gauge\nxdsd_vlan_port{address=\"192.0.2.200\",port=\"443\",result=\"timeout\"} 0\n"
	const apps, service, routed = "infra/clusters/demo/apps-https", "clusters-demo/oauth/6443", "clusters-demo/konnectivity/8091"
	const noRoute = "dial tcp 198.18.0.8:8091: connect: no route to host"
	for _, tc := range []struct{ name, upstream, neighbor, device, want string }{
		{"a route leads to the VLAN", routed, "", "net1", "fail packets to 198.18.0.8 leave through net1: a route of the pod leads to the VLAN, although these backends are not in its subnets\nbackend " + routed + ": " + noRoute},
		{"no route leads to the VLAN", routed, "", "eth0", "fail none of the 1 endpoints of backend " + routed + " accepts connections\n" + noRoute},
		{"no host has the apps address", apps, neighbor("", "0"), "", noHost},
		{"no host has it, and another host answers", apps, silent("03:03:20", "icmp"), "", noHost},
		{"no host has it, and another host answered at about the same time", apps, silent("03:03:15", "icmp") + "xdsd_vlan_neighbor_last_answer_timestamp_seconds{address=\"192.0.2.200\",mac=\"02:00:00:00:00:20\",by=\"icmp\"} 1767323000\n", "", uncertain},
		{"no host has it, and another host answered before the kernel noticed", apps, silent("03:02:50", "icmp"), "", uncertain},
		{"no host has it, and the kernel still knows another host", apps, silent("03:04:00", "arp"), "", uncertain},
		{"a host had the apps address", apps, neighbor("02:00:00:00:00:20", "1"), "", "fail apps address 192.0.2.200 accepts no connections at port 443\nthe last host with the address had MAC address 02:00:00:00:00:20, and may be gone"},
		{"a host has the apps address", apps, neighbor("02:00:00:00:00:20", "1") + closed, "", "fail apps address 192.0.2.200 answers ARP requests on the VLAN, but accepts no connections at port 443\nMAC address 02:00:00:00:00:20"},
		{
			"another host has replaced that of the apps address", apps, neighbor("02:00:00:00:00:e1", "1") + closed + "# TYPE xdsd_vlan_neighbor_changed_timestamp_seconds gauge\nxdsd_vlan_neighbor_changed_timestamp_seconds{address=\"192.0.2.200\",mac=\"02:00:00:00:00:e1\",previous=\"02:00:00:00:00:20\"} 1767323000\n", "",
			"fail apps address 192.0.2.200 answers ARP requests on the VLAN, but accepts no connections at port 443: host 02:00:00:00:00:e1, which does not serve apps, has replaced host 02:00:00:00:00:20\nMAC address 02:00:00:00:00:e1\n02:00:00:00:00:e1 replaced 02:00:00:00:00:20 at 2026-01-02T03:03:20Z",
		},
		{"the apps address was not probed", apps, "", "", "fail apps address 192.0.2.200 accepts no connections at port 443"},
		{"a Service", service, "", "", "fail none of the 1 endpoints of backend clusters-demo/oauth/6443 accepts connections\ndial tcp 198.18.0.9:6443: i/o timeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := findingsOn(t, "OOOI-PRX-012", map[page]string{envoyMetrics: fmt.Sprintf(envoy, tc.upstream), xdsdState: strings.Replace(state, "INTERFACE", tc.device, 1), xdsdMetrics: tc.neighbor})
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFailedConnections reports that most connections of Envoy have failed, unless xdsd connects again.
func TestFailedConnections(t *testing.T) {
	const name = "clusters-demo/oauth/6443"
	envoy := ""
	for metric, value := range map[string]int{"membership_total": 1, "membership_healthy": 1, "upstream_cx_total": 49, "upstream_cx_connect_fail": 27} {
		envoy += fmt.Sprintf("# TYPE envoy_cluster_%[1]s gauge\nenvoy_cluster_%[1]s{envoy_cluster_name=%[2]q} %[3]d\n", metric, name, value)
	}
	const state = `{"proxyServers": [{"upstreams": [{"name": "` + name + `", "service": "clusters-demo/oauth"}]}], "backends": [%s]}`
	const failed = "fail 27 of 49 connections to backend " + name + " have failed since Envoy started"
	for backend, want := range map[string][]string{
		"": {failed},
		`{"upstream": "` + name + `", "name": "oauth.example.com", "address": "198.18.0.9:6443", "error": "timeout"}`: {failed},
		`{"upstream": "` + name + `", "name": "oauth.example.com", "address": "198.18.0.9:6443", "connected": true}`:  {},
	} {
		got := findingsOn(t, "OOOI-PRX-012", map[page]string{envoyMetrics: envoy, xdsdState: fmt.Sprintf(state, backend), xdsdMetrics: ""})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with backend %s:\n%s", backend, diff)
		}
	}
}

func TestForwardedQueries(t *testing.T) {
	metrics := func(udp, root, tcp string) string {
		var b strings.Builder
		for _, m := range []struct{ name, rcode string }{{"forward", udp}, {"forward_tcp", tcp}, {"root", root}} {
			if m.rcode != "absent" {
				fmt.Fprintf(&b, "# TYPE xdsd_vlan_dns_%[1]s gauge\nxdsd_vlan_dns_%[1]s{address=\"192.0.2.3\",rcode=%[2]q} 1\n", m.name, m.rcode)
			}
		}
		return b.String()
	}
	const overTCP = " over TCP for names outside of the hosted cluster, and answers those over UDP: its upstream resolvers do not answer over TCP, and answers that are too large for UDP fail"
	for _, tc := range []struct {
		name, udp, root, tcp string
		want                 []string
	}{
		{"healthy", "NXDOMAIN", "NOERROR", "NXDOMAIN", []string{}},
		{"the root is not resolved without the Internet", "NXDOMAIN", "SERVFAIL", "NXDOMAIN", []string{}},
		{"DNS does not answer over TCP", "NXDOMAIN", "NOERROR", "absent", []string{}},
		{"NXDOMAIN for every name", "NXDOMAIN", "NXDOMAIN", "NXDOMAIN", []string{"warn DNS server 192.0.2.3 returns NXDOMAIN for the root of the DNS: its upstream resolvers return it for every name"}},
		{"refused over TCP", "NXDOMAIN", "NOERROR", "SERVFAIL", []string{"warn DNS server 192.0.2.3 returns SERVFAIL for queries" + overTCP}},
		{"silent over TCP", "NXDOMAIN", "NOERROR", "", []string{"warn DNS server 192.0.2.3 does not answer queries" + overTCP}},
		{"down", "SERVFAIL", "SERVFAIL", "SERVFAIL", []string{"fail DNS server 192.0.2.3 returns SERVFAIL for names outside of the hosted cluster: its upstream resolvers do not answer or fail"}},
		{"silent", "", "absent", "absent", []string{"fail DNS server 192.0.2.3 does not answer queries for names outside of the hosted cluster: its upstream resolvers do not answer"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, findingsOn(t, "OOOI-DNS-007", map[page]string{xdsdMetrics: metrics(tc.udp, tc.root, tc.tcp), dnsMetrics: ""})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDisappearedObjects has pods that use objects that disappeared from the API server.
func TestDisappearedObjects(t *testing.T) {
	const kept = `"kept": {"objects": 2, "names": ["clusters/a", "clusters/b"], "since": "2026-01-02T03:00:00Z", "until": "2026-01-02T03:10:00Z"}`
	for code, tc := range map[string]struct {
		page       page
		body, want string
	}{
		"OOOI-DNS-006": {
			dnsMetrics, sortMetrics("coredns_oooi_synced{source=\"x\"} 1\ncoredns_oooi_kept_objects{source=\"x\",resource=\"hostedclusters\"} 2\n"),
			"warn coredns uses objects that disappeared from the API server\nhostedclusters: 2",
		},
		"OOOI-PRX-008": {
			xdsdState, `{"store": {"synced": true, "resources": [{"resource": "services", "connected": true, ` + kept + `}]}}`,
			"warn xdsd uses objects that disappeared from the API server\nservices: 2, such as clusters/a, until 2026-01-02T03:10:00Z",
		},
		"OOOI-DHCP-008": {
			dhcpState, `{"kubevirt": {"synced": true, "watches": [{"resource": "virtualmachineinstances", "connected": true, ` + kept + `}]}}`,
			"warn coredhcp uses objects that disappeared from the API server\nvirtualmachineinstances: 2, such as clusters/a, until 2026-01-02T03:10:00Z",
		},
	} {
		t.Run(code, func(t *testing.T) {
			if diff := cmp.Diff([]string{tc.want}, findingsOn(t, code, map[page]string{tc.page: tc.body})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestReach has pods of one node with failed watches of the API server.
func TestReach(t *testing.T) {
	const xdsdLost = `{"store": {"resources": [{"resource": "services", "error": "dial tcp 10.96.0.1:443: i/o timeout"}]}}`
	const dhcpLost = `{"kubevirt": {"watches": [{"resource": "virtualmachines", "connected": true}]}, "leasedb": [{"pool": "demo", "failure": "Get \"https://10.96.0.1:443/apis\": http2: client connection lost"}]}`
	const denied = `{"kubevirt": {"watches": [{"resource": "virtualmachines", "error": "virtualmachines is forbidden"}]}}`
	const following = `{"kubevirt": {"watches": [{"resource": "virtualmachines", "connected": true}]}}`
	const message = "fail our pods on the node do not reach the API server at 10.96.0.1:443, which answers doctor: they serve what they last knew\n"
	const notNoticed = "pods of ours on the node that have not lost their connections, or not noticed yet, which takes up to 25 seconds: 1"
	dns := sortMetrics("coredns_oooi_synced{scope=\"x\"} 1\n")
	for _, tc := range []struct {
		name, xdsd, dhcp, dns string
		want                  []string
	}{
		{"two pods", xdsdLost, dhcpLost, dns, []string{message + "Pod dhcp: does not follow the API server\nPod proxy: i/o timeout\n" + notNoticed}},
		{"all pods", xdsdLost, dhcpLost, sortMetrics("coredns_oooi_synced{scope=\"x\"} 0\n"), []string{message + "Pod dhcp: does not follow the API server\nPod dns: does not follow the API server\nPod proxy: i/o timeout"}},
		{"DNS cannot connect", xdsdLost, following, sortMetrics("coredns_oooi_synced{scope=\"x\"} 1\ncoredns_oooi_failed_watches{source=\"x\",reason=\"Unreachable\"} 7\n"), []string{message + "Pod dns: does not follow the API server\nPod proxy: i/o timeout\n" + notNoticed}},
		{"the API server answers DNS", xdsdLost, following, sortMetrics("coredns_oooi_synced{scope=\"x\"} 1\ncoredns_oooi_failed_watches{source=\"x\",reason=\"Forbidden\"} 7\n"), []string{}},
		{"one pod", xdsdLost, following, dns, []string{}},
		{"the API server answers another pod", xdsdLost, denied, dns, []string{}},
		{"no pod says why", `{}`, dhcpLost, sortMetrics("coredns_oooi_synced{scope=\"x\"} 0\n"), []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := findingsOn(t, "OOOI-NODE-003", map[page]string{xdsdState: tc.xdsd, dhcpState: tc.dhcp, dnsMetrics: tc.dns})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
