package faults

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// NodeSite is a site on real nodes. The VLAN is bridge vlan50 with network 198.18.50.0/24, on which DHCP, DNS and the proxy have
// host numbers 5, 6 and 7.
type NodeSite struct {
	*Site

	// Freeze stops the processes of a container in namespace clusters with SIGSTOP; thaw continues them.
	Freeze func(t *testing.T, pod, container string) (thaw func())
	// Kill kills the processes of a container in namespace clusters.
	Kill func(t *testing.T, pod, container string)
	// InNetworkOf runs a command in the network namespace of a pod in namespace clusters, and OnNode in the node's network namespace.
	InNetworkOf func(t *testing.T, pod string, line ...string)
	OnNode      func(t *testing.T, line ...string)
	// Unplug disconnects the node's cable to the VLAN.
	Unplug func(t *testing.T) (plug func())
	// AddHost connects a host with the MAC address addedHost and an address to the VLAN. The host sends ARP requests, unless
	// it is silent.
	AddHost func(t *testing.T, address string, silent bool) (disconnect func())
}

// addedHost is the MAC address of the host that AddHost connects.
const addedHost = "02:00:00:00:50:e1"

// OnNode returns the faults of a site on a node. s may be nil if none is tried.
func OnNode(s *NodeSite) []Group {
	return []Group{
		{Name: "pods", Faults: []Fault{
			{Name: "quota is exceeded", Want: "POD-005 fail", Says: "exceeded quota", Break: func() {
				s.Undo(func() { s.restart("demo-dns-0") })
				s.Add("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: clusters}\nspec: {hard: {pods: \"0\"}}\n")
				s.restart("demo-dns-0")
			}},
			{Name: "device uses the address of a VM", Want: "DHCP-004 fail", Says: addedHost, Break: func() {
				address := s.leasedAddress()
				s.dropOnUplink("ether saddr != " + addedHost + " arp saddr ip " + address)
				s.Undo(s.AddHost(s.T, address, false))
			}},
			{Name: "large packets are lost on the VLAN", Probe: true, Want: "PRB-001 fail", Break: s.filter("demo-proxy-0", "inet", "output", `oifname "net1" tcp sport 443 meta length > 900`)},
			{Name: "container crashes repeatedly", Want: "POD-003 warn", Says: "container envoy has restarted", Break: func() {
				s.Undo(func() { s.restart("demo-proxy-0") })
				for restarts := range int64(2) {
					s.Kill(s.T, "demo-proxy-0", "envoy")
					s.awaitRestarts("demo-proxy-0", restarts+1)
				}
			}},
		}},
		{Name: "node", Faults: []Fault{
			{Name: "pod of DNS is evicted, and no node accepts it", Want: "NODE-001 fail", Says: "cordoned", Break: func() {
				nodes := &unstructured.UnstructuredList{}
				nodes.SetGroupVersionKind(object("v1 Node x").GroupVersionKind())
				lab.Must(s, s.Client.List(s.Context(), nodes))
				s.Patch("v1 Node "+nodes.Items[0].GetName(), `{"spec": {"unschedulable": true}}`)
				s.restart("demo-dns-0")
			}},
			{Name: "image does not exist", Want: "INF-002 fail", Says: "localhost/missing:none", Break: func() {
				s.Undo(func() { s.restart("demo-proxy-0") })
				s.Patch("apps/v1 StatefulSet clusters/demo-proxy", `{"spec": {"template": {"spec": {"containers": `+toJSON(s.withImage("demo-proxy", "localhost/missing:none"))+`}}}}`)
			}},
			{Name: "pod of DHCP hangs", Want: "POD-002 fail", Break: func() { s.Undo(s.Freeze(s.T, "demo-dhcp-0", "coredhcp")) }},
		}},
		{Name: "interfaces", Faults: []Fault{
			{Name: "VLAN interface of DHCP is down", Want: "LNK-001 fail", Says: "net1", Break: func() {
				s.Undo(func() { s.restart("demo-dhcp-0") })
				s.InNetworkOf(s.T, "demo-dhcp-0", "ip", "link", "set", "net1", "down")
			}},
			{Name: "another host takes the address of DNS", Want: "LNK-005 fail", Says: addedHost, Break: func() { s.Undo(s.AddHost(s.T, "198.18.50.6", false)) }},
			{Name: "VLAN interface of the proxy has a small MTU", Want: "LNK-003 fail", Says: "1280", Break: func() {
				s.InNetworkOf(s.T, "demo-proxy-0", "ip", "link", "set", "net1", "mtu", "1280")
				s.Undo(func() { s.InNetworkOf(s.T, "demo-proxy-0", "ip", "link", "set", "net1", "mtu", "1500") })
			}},
			// It is reported after a minute, in which the faults above are found.
			{Name: "port of DNS is detached from the bridge", Want: "LNK-004 fail", Says: "no host on the VLAN answers", Break: func() {
				s.Undo(func() { s.OnNode(s.T, "sh", "-ec", "ip link set $(cat /tmp/port) master vlan50") })
				s.OnNode(s.T, "sh", "-ec", "echo "+s.portOf("demo-dns-0")+" >/tmp/port; ip link set $(cat /tmp/port) nomaster")
			}},
			{Name: "filter drops DNS's connections to the API server", Want: "API-006 warn", Break: s.filter("demo-dns-0", "inet", "output", "ip daddr 10.96.0.1")},
		}},
		{Name: "VLAN", Faults: []Fault{
			// The pods must have heard the VMs before: no earlier group restarts DHCP.
			{Name: "cable of the node to the VLAN is unplugged", Want: "LNK-007 fail", Break: func() { s.Undo(s.Unplug(s.T)) }},
			{Name: "filter on the VLAN drops connections to the API server", Want: "LNK-010 fail", Says: "6443", Break: s.filter("demo-proxy-0", "inet", "input", `iifname "net1" tcp dport 6443`)},
		}},
		{Name: "probe", Faults: []Fault{
			{Name: "filter on the VLAN drops DHCP requests of VMs", Probe: true, Want: "PRB-001 fail", Break: s.filter("demo-dhcp-0", "netdev", "ingress device net1", "udp dport 67 ip saddr != 198.18.50.7")},
		}},
	}
}

// OnFloatingAddress returns the faults of a site on two nodes whose proxy has several replicas and floating address
// 198.18.50.7. s may be nil if none is tried.
func OnFloatingAddress(s *NodeSite) []Group {
	return []Group{
		{Name: "holders", Faults: []Fault{
			{Name: "two proxy replicas hold the floating address", Want: "PRX-016 fail", Break: func() {
				holder := s.holder()
				s.filter(holder, "netdev", "ingress device net1", "arp daddr ip 198.18.50.7 drop; add rule netdev fault c arp saddr ip 198.18.50.7")()
				s.filter(holder, "inet", "output", "ip daddr 10.96.0.1")()
				s.Await("another replica to claim the address", func() bool { return s.holder() != holder })
			}},
		}},
		{Name: "other host", Faults: []Fault{
			{Name: "silent host has the address of DNS", Want: "LNK-005 fail", Says: addedHost, Break: func() { s.Undo(s.AddHost(s.T, "198.18.50.6", true)) }},
			{Name: "silent host has the floating address", Want: "PRX-016 fail", Says: addedHost, Break: func() { s.Undo(s.AddHost(s.T, "198.18.50.7", true)) }},
		}},
		{Name: "no holder", Faults: []Fault{
			{Name: "no proxy replica takes the floating address", Want: "PRX-017 fail", Break: func() {
				pods := &corev1.PodList{}
				lab.Must(s, s.Client.List(s.Context(), pods, client.InNamespace("clusters"), client.MatchingLabels{"app.kubernetes.io/component": "proxy"}))
				for i := range pods.Items { // from containers holder to Envoy
					s.filter(pods.Items[i].Name, "inet", "input", "ip daddr 127.0.0.1 tcp dport 9907")()
				}
			}},
		}},
	}
}

// holder returns the pod of the replica that holds the Lease of the floating address.
func (s *NodeSite) holder() string {
	s.Helper()
	name := s.field("coordination.k8s.io/v1 Lease clusters/demo-proxy-address", "spec", "holderIdentity")
	if name == "" {
		s.Fatal("no replica holds the Lease of the floating address")
	}
	return name
}

// filter returns a function that drops packets that match at a hook of nftables in the network namespace of a pod.
func (s *NodeSite) filter(pod, family, hook, match string) func() {
	return func() {
		table := family + " fault"
		s.Undo(func() { s.InNetworkOf(s.T, pod, "nft", "delete table "+table) })
		s.InNetworkOf(s.T, pod, "nft", strings.Join([]string{"add table " + table, "add chain " + table + " c { type filter hook " + hook + " priority 0; }",
			"add rule " + table + " c " + match + " drop"}, "; "))
	}
}

// dropOnUplink drops the packets that match and arrive at the node from the VLAN.
func (s *NodeSite) dropOnUplink(match string) {
	s.Helper()
	s.Undo(func() { s.OnNode(s.T, "nft", "delete table netdev fault") })
	s.OnNode(s.T, "nft", "add table netdev fault; add chain netdev fault c { type filter hook ingress device vlan50-up priority 0; }; add rule netdev fault c "+match+" drop")
}

// leasedAddress returns the address of a bound lease.
func (s *NodeSite) leasedAddress() string {
	s.Helper()
	leases := &unstructured.UnstructuredList{}
	leases.SetGroupVersionKind(object("coordination.k8s.io/v1 Lease x").GroupVersionKind())
	lab.Must(s, s.Client.List(s.Context(), leases, client.InNamespace("clusters"), client.MatchingLabels{"leasedb.densityops.com/state": "bound"}))
	if len(leases.Items) == 0 {
		s.Fatal("no VM has a lease")
	}
	return strings.TrimPrefix(leases.Items[0].GetName(), "clusters.demo.")
}

// portOf returns a shell command substitution for the port of a pod on the bridge of its node.
func (s *NodeSite) portOf(pod string) string {
	s.Helper()
	status := s.mustGet("v1 Pod clusters/" + pod).GetAnnotations()["k8s.v1.cni.cncf.io/network-status"]
	var interfaces []struct{ Interface, MAC string }
	lab.Must(s, json.Unmarshal([]byte(status), &interfaces))
	at := slices.IndexFunc(interfaces, func(i struct{ Interface, MAC string }) bool { return i.Interface == "net1" })
	if at < 0 {
		s.Fatalf("Pod %s has no interface net1: %s", pod, status)
	}
	return "$(bridge fdb show br vlan50 | awk '$1 == \"" + strings.ToLower(interfaces[at].MAC) + "\" {print $3; exit}')"
}

// restart deletes a pod of a StatefulSet, which then creates it again.
func (s *NodeSite) restart(pod string) {
	s.Helper()
	id := "v1 Pod clusters/" + pod
	before := s.Get(id)
	if before == nil {
		return // not created yet
	}
	if err := client.IgnoreNotFound(s.Client.Delete(s.Context(), before)); err != nil { // its StatefulSet may have deleted it
		s.Fatal(err)
	}
	s.Await("Pod "+pod+" to be deleted", func() bool {
		now := s.Get(id)
		return now == nil || now.GetUID() != before.GetUID()
	})
}

// awaitRestarts waits until a container of a pod has restarted a number of times and is ready.
func (s *NodeSite) awaitRestarts(pod string, want int64) {
	s.Helper()
	s.Await(pod+" to have restarted", func() bool {
		statuses, _, _ := unstructured.NestedSlice(s.mustGet("v1 Pod clusters/"+pod).Object, "status", "containerStatuses")
		return slices.ContainsFunc(statuses, func(c any) bool {
			status, _ := c.(map[string]any)
			n, _ := status["restartCount"].(int64)
			return n >= want && status["ready"] == true
		})
	})
}

// withImage returns the containers of a StatefulSet with another image of the first.
func (s *NodeSite) withImage(set, image string) []any {
	s.Helper()
	containers, _, _ := unstructured.NestedSlice(s.mustGet("apps/v1 StatefulSet clusters/"+set).Object, "spec", "template", "spec", "containers")
	first, _ := containers[0].(map[string]any)
	first["image"] = image
	return containers
}
