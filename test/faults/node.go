package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeSite gives access to the processes and networks of a site on a real node.
type NodeSite struct {
	// Freeze stops the processes of a container in the Infra's namespace with SIGSTOP; thaw continues them.
	Freeze func(t *testing.T, pod, container string) (thaw func())
	// Kill kills the processes of a container in the Infra's namespace.
	Kill func(t *testing.T, pod, container string)
	// InNetworkOf runs a command in the network namespace of a pod in the Infra's namespace.
	InNetworkOf func(t *testing.T, pod string, line ...string)
	// OnNode runs a command in the node's network namespace.
	OnNode func(t *testing.T, line ...string)
	// TLSServer starts a server behind the proxy that negotiates HTTP/2, with a certificate for names, which
	// has expired if expired is true.
	TLSServer func(t *testing.T, address string, expired bool, names ...string) (stop func())
	// Unplug disconnects the node's cable to the VLAN.
	Unplug func(t *testing.T) (plug func())
	// OtherDHCP starts another DHCP server on the VLAN.
	OtherDHCP func(t *testing.T) (stop func())
	// AddHost connects a host with the MAC address addedHost and an address to the VLAN. The host announces itself once,
	// unless it is silent.
	AddHost func(t *testing.T, address string, silent bool) (disconnect func())
	// RequestAddress requests an address from DHCP in a VM.
	RequestAddress func(t *testing.T)
	// Claim announces an address on the VLAN from another host.
	Claim func(t *testing.T, address string)
}

// OnNode returns the faults of a site on a real node.
func OnNode() []Fault { return slices.Concat(processFaults(), objectFaults(), vlanFaults()) }

// processFaults returns faults of processes and pods, and of the objects that pods start from.
func processFaults() []Fault {
	return []Fault{
		{Name: "DNS has no pod", Break: func(s *Site) { s.Patch(setKind, "$ns", "demo-dns", `{"spec": {"replicas": 0}}`) }, Want: []string{"POD-002 fail"}},
		{Name: "finalizer prevents the deletion of a pod", Break: func(s *Site) {
			s.Undo(func() { s.Patch(podKind, "$ns", "demo-dhcp-0", `{"metadata": {"finalizers": null}}`) })
			s.Patch(podKind, "$ns", "demo-dhcp-0", `{"metadata": {"finalizers": ["example.com/stuck"]}}`)
			if err := s.Client.Delete(s.Context(), s.Get(podKind, "$ns", "demo-dhcp-0")); err != nil {
				s.Fatal(err)
			}
		}, Want: []string{"POD-002 fail"}},
		{Name: "container crashes repeatedly", Break: func(s *Site) {
			s.Undo(func() { s.restart("demo-dns-0") })
			s.Node.Kill(s.T, "demo-dns-0", "coredns")
			s.awaitRestarts("demo-dns-0", 1)
			s.Node.Kill(s.T, "demo-dns-0", "coredns") // the kubelet restarts it after a backoff of ten seconds
		}, Want: []string{"POD-002 fail"}},
		{Name: "container crashed twice and runs again", Break: func(s *Site) {
			s.Undo(func() { s.restart("demo-proxy-0") })
			for restarts := range int64(2) {
				s.Node.Kill(s.T, "demo-proxy-0", "envoy")
				s.awaitRestarts("demo-proxy-0", restarts+1)
			}
		}, Want: []string{"POD-003 warn"}, Says: "container envoy has terminated 2 times"},
		{Name: "Envoy hangs", Break: frozenContainer("demo-proxy-0", "envoy"), Want: []string{"POD-009 fail"}},
		{Name: "DHCP hangs", Break: frozenContainer("demo-dhcp-0", "coredhcp"), Want: []string{"POD-009 fail"}},
		{Name: "DNS hangs and the VLAN interface of DHCP is down", Break: func(s *Site) {
			frozenContainer("demo-dns-0", "coredns")(s)
			vlanInterface("demo-dhcp-0", "ip link set net1 down")(s)
		}, Want: []string{"POD-009 fail", "LNK-001 fail"}},
		{Name: "Envoy requests another ProxyServer's configuration", Break: func(s *Site) {
			s.patchTemplate("demo-proxy", func(spec map[string]any) {
				containers, _ := spec["initContainers"].([]any)
				first, _ := containers[0].(map[string]any)
				line, _ := first["command"].([]any)
				for i := range line {
					if line[i] == "--proxy-server" {
						line[i+1] = s.Namespace + "/other"
					}
				}
			})
		}, Want: []string{"POD-002 fail", "INF-002 warn"}},
		{Name: "image does not exist", Break: func(s *Site) {
			s.patchTemplate("demo-dhcp", func(spec map[string]any) { firstContainer(spec)["image"] = "localhost/missing:none" })
		}, Want: []string{"POD-002 fail", "POD-004 warn"}, Says: "cannot pull image localhost/missing:none: the registry cannot be reached"},
		{Name: "kubelet rejects a sysctl", Break: func(s *Site) {
			s.Patch(namespaceKind, "", "$ns", `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}`)
			s.patchTemplate("demo-dns", func(spec map[string]any) {
				securityContext(spec)["sysctls"] = []any{map[string]any{"name": "kernel.msgmax", "value": "65536"}}
			})
		}, Want: []string{"POD-002 fail", "INF-002 warn"}},
		{Name: "Pod Security rejects a pod", Break: func(s *Site) {
			s.patchTemplate("demo-dns", func(spec map[string]any) { securityContext(spec)["runAsNonRoot"] = false })
		}, Want: []string{"POD-005 fail", "INF-002 warn"}},
		{Name: "quota is exceeded", Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: $ns}\nspec: {hard: {pods: \"0\"}}\n")
			s.restartNowAndAfterMend("demo-dhcp-0")
		}, Want: []string{"POD-005 fail"}},
		{Name: "ServiceAccount does not exist", Break: func(s *Site) {
			s.Remove(accountKind, "$ns", "demo-dhcp")
			s.restartNowAndAfterMend("demo-dhcp-0")
		}, Want: []string{"POD-005 fail"}},
		{Name: "CoreDNS rejects its Corefile", Break: func(s *Site) {
			s.Patch(configMapKind, "$ns", "demo-dns", `{"data": {"Corefile": ".:53 {\n    view vlan {\n        demo.example.com {\n        }\n    }\n}\n"}}`)
			s.restartNowAndAfterMend("demo-dns-0")
		}, Want: []string{"POD-002 fail"}, Says: `/demo-dns was changed by "`},
		{Name: "DNS runs a Corefile that was edited", Break: func(s *Site) {
			s.editCorefile()
			s.restartNowAndAfterMend("demo-dns-0")
		}, Want: []string{"POD-013 warn", "INF-002 warn"}, Says: "/demo-dns-0: 'kubectl oooi diff"},
		{Name: "DNS runs a Corefile that has been restored", Break: func(s *Site) {
			restore := s.editCorefile()
			s.restartNowAndAfterMend("demo-dns-0")
			s.awaitRestarts("demo-dns-0", 0)
			restore()
		}, Want: []string{"POD-013 fail"}, Says: "another configuration than ConfigMap demo-dns has"},
		{Name: "CNI plugin is missing on the node", Break: func(s *Site) {
			s.Patch(nadKind, "$ns", s.networkOfDNS(), `{"spec": {"config": "{\"cniVersion\": \"0.3.1\", \"name\": \"demo-dns\", \"type\": \"nonesuch\"}"}}`)
			s.restartNowAndAfterMend("demo-dns-0")
		}, Want: []string{"POD-002 fail"}, Says: "CNI plugin nonesuch is not installed on node "},
		{Name: "network assigns another address", Break: func(s *Site) {
			config, _, _ := unstructured.NestedString(s.Get(nadKind, "$ns", s.networkOfDNS()).Object, "spec", "config")
			other := strings.ReplaceAll(config, s.Net+".6/24", s.Net+".66/24")
			s.Patch(nadKind, "$ns", s.networkOfDNS(), `{"spec": {"config": `+toJSON(other)+`}}`)
			s.restartNowAndAfterMend("demo-dns-0")
		}, Want: []string{"NET-003 fail", "INF-002 warn"}},
		{Name: "network of DHCP was edited to another bridge", Break: func(s *Site) {
			config, _, _ := unstructured.NestedString(s.Get(nadKind, "$ns", "demo-dhcp").Object, "spec", "config")
			s.Undo(func() { s.Node.OnNode(s.T, "ip", "link", "delete", "fault-bridge") }) // the CNI plugin creates it
			s.Patch(nadKind, "$ns", "demo-dhcp", `{"spec": {"config": `+toJSON(strings.ReplaceAll(config, `"`+s.VLAN+`"`, `"fault-bridge"`))+`}}`)
			s.restartNowAndAfterMend("demo-dhcp-0")
		}, Want: []string{"NET-003 fail"}, Says: `found "fault-bridge", setup would render "`, Never: []string{"of dhcp does not answer"}},
		{Name: "control does not run and the Infra was edited", Break: func(s *Site) {
			s.Patch(deploymentKind, "oooi-system", "oooi-control", `{"spec": {"replicas": 0}}`)
			s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"proxy": {"logLevel": "debug"}}}}`)
		}, Want: []string{"CTL-001 fail"}},
		{Name: "endpoint of the API server does not answer", Break: func(s *Site) {
			s.Patch(sliceKind, "$ns-demo", "kube-apiserver-1", `{"endpoints": [{"addresses": ["192.0.2.99"], "conditions": {"ready": true}}]}`)
		}, Want: []string{"PRX-012 fail"}},
	}
}

// objectFaults returns faults of objects that our daemons read as well.
func objectFaults() []Fault {
	return []Fault{
		{Name: "HostedCluster does not exist", Break: func(s *Site) { s.Remove(hostedKind, "$ns", "demo") }, Want: []string{"HC-001 fail"}},
		{Name: "etcd is unavailable", Break: hostedCondition("EtcdAvailable", "False", "QuorumLost"), Want: []string{"HC-002 fail"}},
		{Name: "VMs are on another network", Break: func(s *Site) {
			s.Add("apiVersion: hypershift.openshift.io/v1beta1\nkind: NodePool\nmetadata: {name: others, namespace: $ns}\nspec:\n  clusterName: demo\n  replicas: 1\n  management: {upgradeType: Replace}\n" +
				"  release: {image: registry.example.com/release:4.20}\n  platform: {type: KubeVirt, kubevirt: {attachDefaultNetwork: false, additionalNetworks: [{name: default/vlan7}]}}\n")
		}, Want: []string{"HC-004 fail"}},
		{Name: "NetworkAttachmentDefinition does not exist", Break: removeNetwork, Want: []string{"NET-001 fail"}},
		{Name: "network has an ipam", Break: networkConfig(`{"cniVersion": "0.3.1", "name": "vlan50", "type": "bridge", "bridge": "vlan50", "ipam": {"type": "whereabouts"}}`), Want: []string{"NET-002 fail"}},
		{Name: "two VMs have one address", Break: duplicateAddress, Want: []string{"NET-004 fail"}},
		{Name: "DNS and the cluster's DNS forward to each other", Break: func(s *Site) { forwardToClusterDNS(s, "kube-system", "kube-dns") }, Want: []string{"DNS-003 fail"}},
		{Name: "cluster's DNS does not forward", Break: func(s *Site) {
			s.Patch(configMapKind, "kube-system", "coredns", `{"data": {"Corefile": ".:53 {\n    ready\n    reload 2s\n}\n"}}`) // with plugin reload, so that it notices when the Corefile is restored
		}, Want: []string{"DNS-004 warn"}},
		{Name: "address was declined", Break: declinedLease(158), Want: []string{"DHCP-004 warn"}},
		{Name: "lease is outside of the ranges", Break: leaseOutsideRanges(201), Want: []string{"DHCP-003 warn"}},
		{Name: "DHCP options set other DNS servers", Break: overrideDNSServers, Want: []string{"DHCP-006 fail"}},
		{Name: "API server has no EndpointSlice", Break: func(s *Site) { s.Remove(sliceKind, "$ns-demo", "kube-apiserver-1") }, Want: []string{"PRX-002 fail"}},
		{Name: "Service of konnectivity does not exist", Break: removeKonnectivity, Want: []string{"PRX-002 fail"}},
		{Name: "backend has konnectivity's port of earlier samples", Break: sampleBackend("konnectivity-server", 8132), Want: []string{"PRX-002 fail"}},
		{Name: "NetworkPolicies do not admit the proxy", Break: func(s *Site) {
			s.Add("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: kas, namespace: $ns-demo}\nspec: {podSelector: {matchLabels: {app: kube-apiserver}}, policyTypes: [Ingress]}\n")
			removeProxyPolicy(s)
		}, Want: []string{"PRX-005 fail"}},
		{Name: "Service of the earlier operator exists", Break: operatorObject("v1", "Service", "spec: {ports: [{port: 67}]}"), Want: []string{"OLD-001 fail"}},
	}
}

// editCorefile adds a comment to the Corefile of DNS, and returns a function that removes it.
func (s *Site) editCorefile() (restore func()) {
	s.Helper()
	corefile, _, _ := unstructured.NestedString(s.Get(configMapKind, "$ns", "demo-dns").Object, "data", "Corefile")
	set := func(text string) {
		s.Patch(configMapKind, "$ns", "demo-dns", `{"data": {"Corefile": `+toJSON(text)+`}}`)
	}
	set("# edited\n" + corefile)
	return func() { set(corefile) }
}

// minConnections is as many unfinished connections as doctor reports.
const minConnections = 3

// connect keeps on opening connections from the VMs' end of the VLAN, until Mend.
func (s *Site) connect(address string, connections int) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	var running sync.WaitGroup
	for range connections {
		running.Go(func() {
			for ctx.Err() == nil {
				if conn, err := new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
					_ = conn.Close() // no data was sent
				}
			}
		})
	}
	s.Undo(func() { cancel(); running.Wait() })
}

// strippingPolicy removes the annotation that Multus reads from new pods of the Infra's namespace.
const strippingPolicy = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: strip-annotations}\n" +
	"spec: {failurePolicy: Fail, reinvocationPolicy: Never, matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}], " +
	"namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}}, " +
	"matchConditions: [{name: connected, expression: \"has(object.metadata.annotations) && 'k8s.v1.cni.cncf.io/networks' in object.metadata.annotations\"}], " +
	"mutations: [{patchType: JSONPatch, jsonPatch: {expression: \"[JSONPatch{op: 'remove', path: '/metadata/annotations/k8s.v1.cni.cncf.io~1networks'}]\"}}]}\n" +
	"---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: strip-annotations}\nspec: {policyName: strip-annotations}\n"

// removedEngine is the configuration of a webhook for pods whose Service does not exist.
const removedEngine = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: removed-engine}\n" +
	"webhooks: [{name: pods.engine.example.com, failurePolicy: Fail, sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 2, clientConfig: {service: {namespace: engine, name: engine}}, " +
	"rules: [{apiGroups: [\"\"], apiVersions: [v1], resources: [pods], operations: [CREATE]}], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}}]\n"

// vlanFaults returns faults that are only visible from the VLAN.
func vlanFaults() []Fault {
	return []Fault{
		{Name: "VLAN interface of DNS is down", Probe: true, Break: vlanInterface("demo-dns-0", "ip link set net1 down"), Want: []string{"LNK-001 fail"}},
		{Name: "VLAN interface of DHCP is down", Break: vlanInterface("demo-dhcp-0", "ip link set net1 down"), Want: []string{"LNK-001 fail"}},
		{Name: "VLAN interface of the proxy is down", Break: vlanInterface("demo-proxy-0", "ip link set net1 down"), Want: []string{"LNK-001 fail"}},
		{Name: "VLAN interface of DHCP lost its address", Break: vlanInterface("demo-dhcp-0", "ip -4 address flush dev net1"), Want: []string{"LNK-002 fail"}},
		{Name: "VLAN interface of the proxy has a small MTU", Break: vlanInterface("demo-proxy-0", "ip link set net1 mtu 1280"), Want: []string{"LNK-003 fail"}},
		{Name: "route of DHCP leads half of the VLAN to a gateway", Break: vlanInterface("demo-dhcp-0", `ip route add $net.128/25 via $net.1 dev net1 onlink table "$(ip rule | sed -n 's/.*from $net.5 lookup //p')"`), Want: []string{"LNK-011 fail"}, Says: "leave through gateway"},
		{Name: "network of DNS has a route to half of the VLAN", Break: func(s *Site) {
			config, _, _ := unstructured.NestedString(s.Get(nadKind, "$ns", s.networkOfDNS()).Object, "spec", "config")
			routed := strings.ReplaceAll(config, `"ipam":{`, s.expand(`"ipam":{"routes":[{"dst":"$net.128/25","gw":"$net.1"}],`))
			if routed == config {
				s.Fatalf("no ipam in %s", config)
			}
			s.Patch(nadKind, "$ns", s.networkOfDNS(), `{"spec": {"config": `+toJSON(routed)+`}}`)
			s.restartNowAndAfterMend("demo-dns-0")
		}, Want: []string{"LNK-011 fail", "INF-002 warn"}, Says: "spec.config has a route that diverts packets of Pod demo-dns-0"},
		{Name: "filter on the VLAN drops ARP requests to DHCP", Break: filter("demo-dhcp-0", "netdev", "ingress device net1", "ether type arp"), Want: []string{"LNK-004 fail"}},
		{Name: "filter on the VLAN drops all packets of the proxy", Break: filter("demo-proxy-0", "netdev", "ingress device net1", ""), Want: []string{"LNK-004 fail"}},
		{Name: "ports of our pods are detached from the bridge", Probe: true, Break: func(s *Site) {
			s.Undo(func() {
				s.Node.OnNode(s.T, "sh", "-ec", "for port in $(ip -o link | awk -F '[ :@]+' '/alias fault/ {print $2}'); do ip link set $port alias '' master "+s.VLAN+"; done")
			})
			s.Node.OnNode(s.T, "sh", "-ec", "for port in "+s.portOf("demo-dhcp-0")+" "+s.portOf("demo-dns-0")+" "+s.portOf("demo-proxy-0")+"; do ip link set $port alias fault nomaster; done")
		}, Want: []string{"LNK-004 fail"}, Says: "no host on the VLAN answers Pods demo-dhcp-0, demo-dns-0, demo-proxy-0"},
		{Name: "another host on the VLAN has the address of DHCP", Break: otherHost("demo-dhcp-0", "$net.5"), Want: []string{"LNK-005 fail"}},
		{Name: "another host on the VLAN has the address of the proxy", Break: otherHost("demo-proxy-0", "$net.7"), Want: []string{"LNK-005 fail"}},
		{Name: "filter on the VLAN drops DNS queries", Break: filter("demo-dns-0", "inet", "input", `iifname "net1" udp dport 53`), Want: []string{"LNK-006 fail"}},
		{Name: "filter on the VLAN drops replies of DNS to the proxy", Break: filter("demo-dns-0", "inet", "output", `oifname "net1" udp sport 53 ip daddr $net.7`), Want: []string{"LNK-006 fail"}, Says: "answers queries of Pod demo-dhcp-0"},
		{Name: "VLAN loses a third of the packets of the proxy", Break: lossy("demo-proxy-0", "egress"), Want: []string{"LNK-008 fail"}, Says: "packets between the pod and Pod demo-dns-0"},
		{Name: "VLAN loses a third of the packets to DNS", Break: lossy("demo-dns-0", "ingress"), Want: []string{"LNK-008 fail"}, Says: "packets between the pod and Pod demo-dhcp-0"},
		{Name: "kube-proxy hangs and DNS is replaced", Break: func(s *Site) {
			s.Undo(func() { s.Node.OnNode(s.T, "pkill", "-CONT", "-f", "kube-proxy/config.yaml") })
			s.Node.OnNode(s.T, "pkill", "-STOP", "-f", "kube-proxy/config.yaml") // only those of the node's PID namespace
			s.restart("demo-dns-0")
		}, Want: []string{"SVC-002 fail"}, Says: "although Pod demo-dns-0 is ready"},
		{Name: "node does not forward connections to the proxy's Service", Break: func(s *Site) {
			address, _, _ := unstructured.NestedString(s.Get(serviceKind, "$ns", "demo-proxy").Object, "spec", "clusterIP")
			s.Undo(func() { s.Node.OnNode(s.T, "nft", "delete table ip fault") })
			s.Node.OnNode(s.T, "nft", "add table ip fault; add chain ip fault c { type filter hook prerouting priority -350; }; add rule ip fault c ip daddr "+address+" drop")
		}, Want: []string{"SVC-004 fail"}, Says: "accepts no connections from node"},
		{Name: "cable of the node to the VLAN is unplugged", Break: func(s *Site) { s.Undo(s.Node.Unplug(s.T)) }, Want: []string{"LNK-007 fail"}, Says: "only our own pods answer", Never: appsBlamed},
		{Name: "no host has the apps address", Break: func(s *Site) {
			s.dropOnUplink("ingress", s.expand("arp saddr ip $net.200"), s.expand("ip saddr $net.200"))
		}, Want: []string{"PRX-012 fail"}, Says: "no host on the VLAN answers ARP requests"},
		{Name: "device uses the address of a VM", Break: func(s *Site) {
			address := s.leasedAddress()
			s.dropOnUplink("ingress", "ether saddr != "+addedHost+" arp saddr ip "+address)
			s.Undo(s.Node.AddHost(s.T, address, false))
		}, Want: []string{"DHCP-004 fail"}, Says: "another host, with MAC address " + addedHost},
		{Name: "device uses the apps address", Break: func(s *Site) {
			s.dropOnUplink("ingress", s.expand("ether saddr != "+addedHost+" arp saddr ip $net.200"))
			s.Undo(s.Node.AddHost(s.T, s.expand("$net.200"), false))
		}, Want: []string{"PRX-012 fail"}, Says: "host " + addedHost + ", which does not serve apps, has replaced host"},
		{Name: "switch drops ARP of our pods to VMs", Break: func(s *Site) {
			s.dropOnUplink("egress", s.expand("arp saddr ip { $net.5, $net.6, $net.7 } arp daddr ip != $net.200"))
		}, Want: []string{"LNK-012 fail"}, Says: "no longer answer ARP requests of our pods"},
		{Name: "filter drops IP packets of VMs", Break: func(s *Site) {
			s.dropOnUplink("ingress", s.expand("ip saddr != { $net.200, 0.0.0.0 }"))
		}, Want: []string{"LNK-012 warn"}, Says: "answer ARP requests of our pods, but no longer IP packets"},
		{Name: "uplink loses large packets", Break: func(s *Site) { s.dropOnUplink("egress", "meta length > 1300") }, Want: []string{"LNK-013 fail"}, Says: "of more than 1280 bytes are lost"},
		{Name: "ports of DNS and the uplink are isolated from each other", Break: isolate("demo-dns-0"), Want: []string{"LNK-009 fail"}, Says: "reaches our pods and none of the other hosts on the VLAN"},
		{Name: "ports of the proxy and the uplink are isolated from each other", Break: isolate("demo-proxy-0"), Want: []string{"LNK-009 fail"}, Says: "reaches our pods and none of the other hosts on the VLAN", Never: appsBlamed},
		{Name: "port of the proxy is detached from the bridge", Break: func(s *Site) {
			s.Undo(func() { s.restart("demo-proxy-0") })
			s.Node.OnNode(s.T, "sh", "-ec", "ip link set "+s.portOf("demo-proxy-0")+" nomaster")
		}, Want: []string{"LNK-004 fail"}, Says: "no host on the VLAN answers ARP requests of the pod", Never: append(appsBlamed, "of dhcp does not answer", "of dns does not answer")},
		{Name: "filter of the bridge between the uplink and the port of the proxy", Break: func(s *Site) {
			s.Undo(func() { s.Node.OnNode(s.T, "nft", "delete table bridge fault") })
			up := s.VLAN + "-up"
			s.Node.OnNode(s.T, "sh", "-ec", "port="+s.portOf("demo-proxy-0")+`
nft "add table bridge fault; add chain bridge fault c { type filter hook forward priority 0; }; add rule bridge fault c iifname `+up+` oifname $port drop; add rule bridge fault c iifname $port oifname `+up+` drop"`)
		}, Want: []string{"LNK-009 fail"}, Says: "answers Pod demo-d"},
		{Name: "filter of the bridge drops the proxy's answers to connections of VMs", Break: func(s *Site) {
			s.Undo(func() { s.Node.OnNode(s.T, "nft", "delete table bridge fault") })
			s.Node.OnNode(s.T, "sh", "-ec", "port="+s.portOf("demo-proxy-0")+`
nft "add table bridge fault; add chain bridge fault c { type filter hook forward priority 0; }; add rule bridge fault c iifname $port oifname `+s.VLAN+`-up tcp flags & (syn | ack) == syn | ack drop"`)
			s.connect(s.Net+".7:6443", minConnections)
		}, Want: []string{"LNK-016 fail"}, Says: "to TCP port 6443 do not complete"},
		{Name: "route of the proxy's pod leads to the VLAN", Break: vlanInterface("demo-proxy-0", "ip route add 192.0.2.0/24 dev net1"), Want: []string{"PRX-012 fail"}, Says: "leave through net1"},
		{Name: "proxy has no free source port", Break: vlanInterface("demo-proxy-0", "echo 50000 50001 >/proc/sys/net/ipv4/ip_local_port_range"), Want: []string{"PRX-012 fail"}, Says: "has no free source port", Never: append(appsBlamed, "does not listen", "kube-proxy")},
		{Name: "filter drops the proxy's connections to the apps address", Break: filter("demo-proxy-0", "inet", "output", "ip daddr $net.200 tcp dport { 80, 443 }"), Want: []string{"PRX-012 fail"}, Says: "answers ARP requests on the VLAN, but accepts no connections"},
		{Name: "node forwards no connections to Services", Break: func(s *Site) {
			s.Undo(func() { s.Node.OnNode(s.T, "nft", "delete table ip fault") })
			s.Node.OnNode(s.T, "nft", "add table ip fault; add chain ip fault c { type filter hook prerouting priority -350; }; add rule ip fault c ip daddr 10.96.0.0/16 drop")
		}, Want: []string{"NODE-003 fail"}},
		{Name: "kubelet hangs", Break: func(s *Site) {
			s.Undo(func() { s.Node.OnNode(s.T, "pkill", "-CONT", "-f", "kubelet/config.yaml") })
			s.Node.OnNode(s.T, "pkill", "-STOP", "-f", "kubelet/config.yaml") // only that of the node's PID namespace
		}, Want: []string{"NODE-001 fail"}, Says: "is on it, and answers the API server"},
		{Name: "filter drops connections of our pods to the API server", Break: func(s *Site) {
			s.Undo(func() { s.Node.OnNode(s.T, "nft", "delete table ip fault") })
			s.Node.OnNode(s.T, "nft", "add table ip fault; add chain ip fault c { type filter hook prerouting priority -350; }; add rule ip fault c ip saddr 10.244.0.0/16 ip daddr 10.96.0.1 drop")
		}, Want: []string{"NODE-003 fail"}, Says: "do not reach the API server at 10.96.0.1:443, which answers doctor"},
		{Name: "API server does not reach the pods of the node", Inconclusive: true, Break: func(s *Site) {
			s.Undo(func() { s.Node.OnNode(s.T, "nft", "delete table ip fault") })
			s.Node.OnNode(s.T, "nft", "add table ip fault; add chain ip fault c { type filter hook forward priority 0; }; add rule ip fault c ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 tcp dport { 9153, 9901-9904 } drop")
		}, Want: []string{"SVC-003 fail"}, Says: "Pod demo-dhcp-0"},
		{Name: "filter drops DHCP's connections to the API server", Break: filter("demo-dhcp-0", "inet", "output", "ip daddr 10.96.0.1"), Want: []string{"DHCP-008 fail"}},
		{Name: "DNS is cut off from the API server", Break: func(s *Site) {
			filter("demo-dns-0", "inet", "output", "ip daddr 10.96.0.1")(s)
			filter("demo-dns-0", "ip", "input", "ip saddr 10.96.0.1")(s)
		}, Want: []string{"DNS-006 warn"}, Says: "watches: Unreachable"},
		{Name: "DNS is cut off from the API server and misses a new name", Probe: true, Break: func(s *Site) {
			filter("demo-dns-0", "inet", "output", "ip daddr 10.96.0.1")(s)
			filter("demo-dns-0", "ip", "input", "ip saddr 10.96.0.1")(s)
			s.Patch(hostedKind, "$ns", "demo", `{"spec": {"kubeAPIServerDNSName": "new.demo.lab.example.com"}}`)
		}, Want: []string{"DNS-006 fail", "PRX-019 fail"}, Says: "has an unexpected answer for new.demo.lab.example.com over UDP: NXDOMAIN"},
		{Name: "upstream resolver cannot be reached", Break: filter("demo-dns-0", "inet", "output", `oifname != "net1" udp dport 53`), Want: []string{"DNS-007 fail"}},
		{Name: "more than half of the queries to the upstream resolver are lost", Break: filter("demo-dns-0", "inet", "output", `oifname != "net1" udp dport 53 numgen random mod 100 < 60`), Want: []string{"DNS-007 fail"}, Says: "for names outside of the hosted cluster had no answer within a minute"},
		{Name: "upstream resolver does not answer over TCP", Break: filter("demo-dns-0", "inet", "output", `oifname != "net1" tcp dport 53`), Want: []string{"DNS-007 warn"}},
		// The name in a query begins 20 bytes after that of the UDP header, and that of the registry has 22 bytes.
		{Name: "upstream resolver does not answer for the registry", Break: filter("demo-dns-0", "inet", "output", `oifname != "net1" udp dport 53 @th,160,72 0x087265676973747279`), Want: []string{"DNS-008 fail"}, Says: "registry.example.com"},
		{Name: "upstream resolver does not answer for IPv6 addresses", Break: filter("demo-dns-0", "inet", "output", `oifname != "net1" udp dport 53 @th,336,16 0x001c`), Want: []string{"DNS-008 warn"}, Says: "AAAA"},
		{Name: "NetworkPolicy admits no egress to the upstream resolver", Break: func(s *Site) {
			addPolicy("$ns", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{protocol: TCP}]}]}")(s)
			filter("demo-dns-0", "inet", "output", `oifname != "net1" udp dport 53`)(s)
		}, Want: []string{"NET-006 fail"}},
		{Name: "filter on the VLAN drops DNS queries of VMs", Probe: true, Break: filter("demo-dns-0", "inet", "input", `iifname "net1" udp dport 53 ip saddr != { $net.5, $net.7 }`), Want: []string{"PRB-001 fail"}},
		{Name: "webhook that does not exist rejects pods", Probe: true, Break: func(s *Site) { s.Add(removedEngine) }, Want: []string{"PRB-010 fail"}},
		{Name: "webhook that does not exist rejects the pod of DHCP", Probe: true, Break: func(s *Site) {
			s.Add(removedEngine)
			s.restartNowAndAfterMend("demo-dhcp-0")
		}, Want: []string{"POD-005 fail"}},
		{Name: "policy removes the network of the pod of a probe", Probe: true, Break: func(s *Site) { s.Add(strippingPolicy) }, Want: []string{"PRB-010 fail"}, Says: "removed annotation k8s.v1.cni.cncf.io/networks"},
		{Name: "policy removes the network of new pods", Probe: true, Break: func(s *Site) {
			s.Add(strippingPolicy)
			s.restartNowAndAfterMend("demo-dns-0")
		}, Want: []string{"POD-005 fail"}, Says: "lacks annotation k8s.v1.cni.cncf.io/networks"},
		{Name: "quota permits no Jobs", Probe: true, Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: no-jobs, namespace: $ns}\nspec: {hard: {count/jobs.batch: \"0\"}}\n")
			s.Await("the quota to be observed", func() bool {
				hard, _, _ := unstructured.NestedStringMap(s.Get(quotaKind, "$ns", "no-jobs").Object, "status", "hard")
				return len(hard) > 0
			})
		}, Want: []string{"PRB-010 fail"}, Says: "permits no more count/jobs.batch"},
		{Name: "switch drops broadcasts of other hosts", Probe: true, Break: func(s *Site) {
			filter("demo-dhcp-0", "netdev", "ingress device net1", "ip saddr != $net.7 meta pkttype broadcast")(s)
			for _, pod := range []string{"demo-dns-0", "demo-proxy-0"} {
				filter(pod, "netdev", "ingress device net1", "arp operation request arp saddr ip != { $net.5, $net.6, $net.7 }")(s)
			}
		}, Want: []string{"PRB-011 fail"}},
		{Name: "silent host with the address of the proxy answers new hosts", Probe: true, Break: func(s *Site) {
			// The pod of the probe has the last address of the DHCP ranges.
			filter("demo-proxy-0", "netdev", "ingress device net1", "arp operation request arp saddr ip $net.159")(s)
			s.Undo(s.Node.AddHost(s.T, s.expand("$net.7"), true))
		}, Want: []string{"PRB-011 fail"}, Says: "another host, with MAC address " + addedHost},
		{Name: "filter on the VLAN rejects connections of other hosts than our pods", Probe: true, Break: func(s *Site) {
			s.addFilter("demo-proxy-0", "inet", "type filter hook input priority 0;", s.expand(`iifname "net1" meta l4proto tcp ip saddr != { $net.5, $net.6, $net.200 } reject with tcp reset`))
		}, Want: []string{"PRB-006 fail"}, Says: "refuses connections from the VLAN, although the pod's MAC address"},
		{Name: "filter on the VLAN drops DHCP requests", Break: filter("demo-dhcp-0", "netdev", "ingress device net1", "udp dport 67"), Want: []string{"LNK-015 fail"}},
		{Name: "filter on the VLAN drops DHCP requests of VMs", Probe: true, Break: filter("demo-dhcp-0", "netdev", "ingress device net1", "udp dport 67 ip saddr != $net.7"), Want: []string{"PRB-003 fail"}},
		{Name: "filter on the VLAN drops replies of DHCP", Break: filter("demo-proxy-0", "netdev", "ingress device net1", "udp sport 67"), Want: []string{"LNK-015 fail"}},
		{Name: "filter on the VLAN drops connections to the API server", Break: filter("demo-proxy-0", "inet", "input", `iifname "net1" tcp dport 6443`), Want: []string{"LNK-010 fail"}, Says: "at TCP port 6443: a filter drops them, since those to port"},
		{Name: "filter on the VLAN drops TLS connections of VMs", Probe: true, Break: filter("demo-proxy-0", "inet", "input", `iifname "net1" tcp dport 443 ip saddr != $net.6`), Want: []string{"PRB-006 fail"}, Says: "but port"},
		{Name: "VM with a lease lost the label of its cluster", Probe: true, Break: func(s *Site) {
			s.Patch(machineKind, "$ns-demo", "worker-1", `{"metadata": {"labels": {"hypershift.openshift.io/infra-id": null}}}`)
		}, Want: []string{"DHCP-011 fail"}, Says: "which it cannot renew"},
		{Name: "ServiceAccount of DNS was created again", Break: func(s *Site) {
			s.Undo(func() { s.restart("demo-dns-0") })
			s.recreate(s.delete(serviceAccountKind, "$ns", "demo-dns"))
		}, Want: []string{"ACC-002 fail"}},
		{Name: "another DHCP server is on the VLAN", Break: func(s *Site) { s.Undo(s.Node.OtherDHCP(s.T)) }, Want: []string{"DHCP-014 warn"}, Says: "replied with DHCPACK"},
		{Name: "another DHCP server on the VLAN offers addresses", Probe: true, Break: func(s *Site) { s.Undo(s.Node.OtherDHCP(s.T)) }, Want: []string{"PRB-004 fail", "DHCP-014 warn"}},
		{Name: "VM has an address of another DHCP server", Break: func(s *Site) {
			s.Undo(func() { s.Node.RequestAddress(s.T) })
			stop := s.Node.OtherDHCP(s.T)
			s.Undo(stop)
			thaw := s.Node.Freeze(s.T, "demo-dhcp-0", "coredhcp") // reads the requests later
			s.Node.RequestAddress(s.T)
			thaw()
		}, Want: []string{"DHCP-014 fail"}},
		{Name: "DHCP offers other DNS servers", Probe: true, Break: func(s *Site) {
			config, _, _ := unstructured.NestedStringMap(s.Get(configMapKind, "$ns", "demo-dhcp").Object, "data")
			for file, text := range config {
				config[file] = strings.ReplaceAll(text, "dns: "+s.Net+".6", "dns: 203.0.113.53")
			}
			s.Patch(configMapKind, "$ns", "demo-dhcp", `{"data": `+toJSON(config)+`}`)
			s.restartNowAndAfterMend("demo-dhcp-0")
		}, Want: []string{"PRB-005 fail", "POD-013 warn", "INF-002 warn"}},
		{Name: "view of DNS was edited", Probe: true, Break: func(s *Site) {
			config, _, _ := unstructured.NestedString(s.Get(configMapKind, "$ns", "demo-dns").Object, "data", "Corefile")
			config = strings.Replace(config, "view vlan", "view pod", 1)
			s.Patch(configMapKind, "$ns", "demo-dns", `{"data": {"Corefile": `+toJSON(config)+`}}`)
			s.restartNowAndAfterMend("demo-dns-0")
		}, Want: []string{"PRB-002 fail", "POD-013 warn", "INF-002 warn"}},
		{Name: "large packets are lost on the VLAN", Probe: true, Break: filter("demo-proxy-0", "inet", "output", `oifname "net1" tcp sport 443 meta length > 900`), Want: []string{"PRB-007 fail"}},
		{Name: "certificate has expired", Probe: true, Break: replaceBackend("konnectivity-server", "192.0.2.85:8091", true, "konnectivity.demo.lab.example.com"), Want: []string{"PRX-019 fail"}},
		{Name: "another backend has no Service and the certificate of konnectivity has expired", Break: func(s *Site) {
			sampleBackend("nonesuch", 443)(s)
			replaceBackend("konnectivity-server", "192.0.2.85:8091", true, "konnectivity.demo.lab.example.com")(s)
		}, Want: []string{"PRX-002 fail", "PRX-019 fail"}},
		{Name: "certificate covers two servers", Probe: true, Break: replaceBackend("ignition-server-proxy", "192.0.2.86:8443", false, "ignition.demo.lab.example.com", "konnectivity.demo.lab.example.com"), Want: []string{"PRB-009 warn"}},
		{Name: "certificate does not cover its name", Probe: true, Break: replaceBackend("ignition-server-proxy", "192.0.2.86:8443", false, "ignition.other.example.com"), Want: []string{"PRX-019 fail"}},
	}
}

// dropOnUplink drops the packets that match one of the rules, at a hook of the node's interface to the VLAN.
func (s *Site) dropOnUplink(hook string, matches ...string) {
	s.Helper()
	s.Undo(func() { s.Node.OnNode(s.T, "nft", "delete table netdev fault") })
	rules := []string{"add table netdev fault", "add chain netdev fault c { type filter hook " + hook + " device " + s.VLAN + "-up priority 0; }"}
	for _, match := range matches {
		rules = append(rules, "add rule netdev fault c "+match+" drop")
	}
	s.Node.OnNode(s.T, "nft", strings.Join(rules, "; "))
}

// appsBlamed are texts of findings that blame the host of the apps address.
var appsBlamed = []string{"MetalLB", "ingress router"}

// isolate returns a function that isolates the port of a pod and the uplink from each other.
func isolate(pod string) func(*Site) {
	return func(s *Site) {
		set := func(state string) {
			s.Node.OnNode(s.T, "sh", "-ec", "for port in "+s.VLAN+"-up "+s.portOf(pod)+"; do bridge link set dev $port isolated "+state+"; done")
		}
		s.Undo(func() { set("off") })
		set("on")
	}
}

// addedHost is the MAC address of the host that AddHost connects.
const addedHost = "02:00:00:00:50:e1"

// leasedAddress returns the address of a bound lease of the Infra.
func (s *Site) leasedAddress() string {
	s.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(leaseKind)
	if err := s.Client.List(s.Context(), list, client.InNamespace(s.Namespace), client.MatchingLabels{"leasedb.densityops.com/state": "bound"}); err != nil {
		s.Fatal(err)
	}
	if len(list.Items) == 0 {
		s.Fatal("no VM has a lease")
	}
	return strings.TrimPrefix(list.Items[0].GetName(), s.expand("$ns.demo."))
}

// otherHost returns a function that adds a host with the address of a pod. The pod sends no ARP packets meanwhile: with
// each one the others would remember its MAC address again.
func otherHost(pod, address string) func(*Site) {
	return func(s *Site) {
		filter(pod, "netdev", "egress device net1", "ether type arp")(s)
		s.Undo(s.Node.AddHost(s.T, s.expand(address), false))
	}
}

// vlanInterface returns a function that runs a command in the network namespace of a pod, which is restarted by Mend.
func vlanInterface(pod, command string) func(*Site) {
	return func(s *Site) {
		s.Undo(func() { s.restart(pod) }) // restores routes as well
		s.Node.InNetworkOf(s.T, pod, "sh", "-ec", s.expand(command))
	}
}

// portOf returns a shell command substitution for the port of a pod on the bridge of its node.
func (s *Site) portOf(pod string) string {
	s.Helper()
	status := s.Get(podKind, "$ns", pod).GetAnnotations()["k8s.v1.cni.cncf.io/network-status"]
	var interfaces []struct{ Interface, MAC string }
	if err := json.Unmarshal([]byte(status), &interfaces); err != nil {
		s.Fatal(err)
	}
	at := slices.IndexFunc(interfaces, func(i struct{ Interface, MAC string }) bool { return i.Interface == "net1" })
	if at < 0 {
		s.Fatalf("Pod %s has no interface net1: %s", pod, status)
	}
	return "$(bridge fdb show br " + s.VLAN + " | awk '$1 == \"" + strings.ToLower(interfaces[at].MAC) + "\" {print $3; exit}')"
}

// filter returns a function that drops the packets that match, all if match is empty, at a hook of nftables in the
// network namespace of a pod.
func filter(pod, family, hook, match string) func(*Site) {
	return func(s *Site) {
		s.addFilter(pod, family, "type filter hook "+hook+" priority 0;", strings.TrimSpace(s.expand(match)+" drop"))
	}
}

// lossy returns a function that drops a third of the packets at a hook of a pod's VLAN interface, at random.
func lossy(pod, hook string) func(*Site) {
	return filter(pod, "netdev", hook+" device net1", "numgen random mod 100 < 35")
}

// replaceBackend returns a function that replaces the endpoint of a Service with a TLS server.
func replaceBackend(service, address string, expired bool, names ...string) func(*Site) {
	return func(s *Site) {
		s.Undo(s.Node.TLSServer(s.T, address, expired, names...))
		host, _, _ := strings.Cut(address, ":")
		s.Patch(sliceKind, "$ns-demo", service+"-1", `{"endpoints": [{"addresses": [`+toJSON(host)+`], "conditions": {"ready": true}}]}`)
	}
}

// frozenContainer returns a function that freezes the processes of a container.
func frozenContainer(pod, container string) func(*Site) {
	return func(s *Site) { s.Undo(s.Node.Freeze(s.T, pod, container)) }
}

// restart deletes a pod of a StatefulSet, which then creates it again.
func (s *Site) restart(pod string) {
	s.Helper()
	before := s.Get(podKind, "$ns", pod)
	if before == nil {
		return // not created yet
	}
	if err := client.IgnoreNotFound(s.Client.Delete(s.Context(), before)); err != nil { // its StatefulSet may have deleted it
		s.Fatal(err)
	}
	s.Await("Pod "+pod+" to be deleted", func() bool {
		now := s.Get(podKind, "$ns", pod)
		return now == nil || now.GetUID() != before.GetUID()
	})
}

// restartNowAndAfterMend restarts a pod now, and again after Mend has reverted all other changes: a StatefulSet
// does not replace a pod that fails to start.
func (s *Site) restartNowAndAfterMend(pod string) {
	s.Helper()
	undo := s.undo
	s.undo = nil
	s.Undo(func() { s.restart(pod) })
	s.undo = append(s.undo, undo...)
	s.restart(pod)
}

// awaitRestarts waits until a container of a pod has restarted a number of times and is ready.
func (s *Site) awaitRestarts(pod string, want int64) {
	s.Helper()
	s.Await(fmt.Sprintf("%s to have restarted", pod), func() bool {
		u := s.Get(podKind, "$ns", pod)
		if u == nil { // between the deletion and the creation by its StatefulSet
			return false
		}
		statuses, _, _ := unstructured.NestedSlice(u.Object, "status", "containerStatuses")
		for _, c := range statuses {
			c, _ := c.(map[string]any)
			if n, _ := c["restartCount"].(int64); n >= want && c["ready"] == true {
				return true
			}
		}
		return false
	})
}

// patchTemplate changes the pod specification of a StatefulSet. Mend restarts the first pod after it is
// reverted.
func (s *Site) patchTemplate(name string, change func(spec map[string]any)) {
	s.Helper()
	set := s.Get(setKind, "$ns", name)
	spec, _, err := unstructured.NestedMap(set.Object, "spec", "template", "spec")
	if err != nil {
		s.Fatal(err)
	}
	change(spec)
	s.Undo(func() { s.restart(name + "-0") })
	s.Patch(setKind, "$ns", name, `{"spec": {"template": {"spec": `+toJSON(spec)+`}}}`)
}

// firstContainer returns the first container of a pod specification.
func firstContainer(spec map[string]any) map[string]any {
	containers, _ := spec["containers"].([]any)
	first, _ := containers[0].(map[string]any)
	return first
}

// securityContext returns the securityContext of a pod specification.
func securityContext(spec map[string]any) map[string]any {
	c, _ := spec["securityContext"].(map[string]any)
	return c
}
