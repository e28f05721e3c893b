package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// NodeSite is what a site on a real node has beside its objects.
type NodeSite struct {
	// Freeze stops the processes of a container of the Infra's namespace, until thaw.
	Freeze func(t *testing.T, pod, container string) (thaw func())
	// Kill ends them.
	Kill func(t *testing.T, pod, container string)
	// InNetworkOf runs a command in the network of a pod of the Infra's namespace.
	InNetworkOf func(t *testing.T, pod string, line ...string)
	// TLSServer starts a server behind the proxy that speaks HTTP/2, of whose certificate it is said
	// whether its time is over.
	TLSServer func(t *testing.T, address string, expired bool, names ...string) (stop func())
	// OtherDHCP starts another DHCP server on the VLAN.
	OtherDHCP func(t *testing.T) (stop func())
	// Claim says on the VLAN that an address is another's.
	Claim func(t *testing.T, address string)
}

// OnNode are the faults of a site on a real node.
func OnNode() []Fault { return slices.Concat(processFaults(), objectFaults(), vlanFaults()) }

// processFaults are of processes, pods and what they start from.
func processFaults() []Fault {
	return []Fault{
		{Name: "no DNS pod", Break: func(s *Site) { s.Patch(setKind, "$ns", "demo-dns", `{"spec": {"replicas": 0}}`) }, Want: []string{"POD-002 fail"}},
		{Name: "a container that ends again and again", Break: func(s *Site) {
			s.Undo(func() { s.restart("demo-dns-0") })
			s.Node.Kill(s.T, "demo-dns-0", "coredns")
			s.awaitRestarts("demo-dns-0", 1)
			s.Node.Kill(s.T, "demo-dns-0", "coredns") // before it runs again, the kubelet waits for ten seconds
		}, Want: []string{"POD-002 fail"}},
		{Name: "an Envoy that does nothing", Break: frozen("demo-proxy-0", "envoy"), Want: []string{"POD-002 fail"}},
		{Name: "an Envoy that asks for what is another's", Break: func(s *Site) {
			s.template("demo-proxy", func(spec map[string]any) {
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
		{Name: "an image that nobody has", Break: func(s *Site) {
			s.template("demo-dhcp", func(spec map[string]any) { container(spec)["image"] = "localhost/nobody:has" })
		}, Want: []string{"POD-002 fail", "POD-004 warn"}},
		{Name: "a sysctl that the kubelet refuses", Break: func(s *Site) {
			s.Patch(namespaceKind, "", "$ns", `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}`)
			s.template("demo-dns", func(spec map[string]any) {
				security(spec)["sysctls"] = []any{map[string]any{"name": "kernel.msgmax", "value": "65536"}}
			})
		}, Want: []string{"POD-002 fail"}},
		{Name: "a pod that Pod Security refuses", Break: func(s *Site) {
			s.template("demo-dns", func(spec map[string]any) { security(spec)["runAsNonRoot"] = false })
		}, Want: []string{"POD-005 fail"}},
		{Name: "a quota that is used up", Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: $ns}\nspec: {hard: {pods: \"0\"}}\n")
			s.restarted("demo-dhcp-0")
		}, Want: []string{"POD-005 fail"}},
		{Name: "no ServiceAccount", Break: func(s *Site) {
			s.Remove(accountKind, "$ns", "demo-dhcp")
			s.restarted("demo-dhcp-0")
		}, Want: []string{"POD-005 fail"}},
		{Name: "a Corefile that CoreDNS refuses", Break: func(s *Site) {
			s.Patch(configMapKind, "$ns", "demo-dns", `{"data": {"Corefile": ".:53 {\n    view vlan {\n        demo.example.com {\n        }\n    }\n}\n"}}`)
			s.restarted("demo-dns-0")
		}, Want: []string{"POD-002 fail", "INF-002 warn"}},
		{Name: "a network by a plugin that the node lacks", Break: func(s *Site) {
			s.Patch(nadKind, "$ns", "demo-dns", `{"spec": {"config": "{\"cniVersion\": \"0.3.1\", \"name\": \"demo-dns\", \"type\": \"nonesuch\"}"}}`)
			s.restarted("demo-dns-0")
		}, Want: []string{"POD-002 fail", "INF-002 warn"}},
		{Name: "a network that gives another address", Break: func(s *Site) {
			config, _, _ := unstructured.NestedString(s.There(nadKind, "$ns", "demo-dns").Object, "spec", "config")
			other := strings.ReplaceAll(config, s.Net+".6/24", s.Net+".66/24")
			s.Patch(nadKind, "$ns", "demo-dns", `{"spec": {"config": `+quote(other)+`}}`)
			s.restarted("demo-dns-0")
		}, Want: []string{"NET-003 fail", "INF-002 warn"}},
		{Name: "no control, and an Infra that was edited", Break: func(s *Site) {
			s.Patch(deploymentKind, "oooi-system", "oooi-control", `{"spec": {"replicas": 0}}`)
			s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"proxy": {"logLevel": "debug"}}}}`)
		}, Want: []string{"CTL-001 fail"}},
		{Name: "an API server that is gone, and its address is not", Break: func(s *Site) {
			s.Patch(sliceKind, "$ns-demo", "kube-apiserver-1", `{"endpoints": [{"addresses": ["192.0.2.99"], "conditions": {"ready": true}}]}`)
		}, Want: []string{"PRX-012 fail"}},
	}
}

// objectFaults are of objects, which our daemons read as well.
func objectFaults() []Fault {
	return []Fault{
		{Name: "no hosted cluster", Break: func(s *Site) { s.Remove(hostedKind, "$ns", "demo") }, Want: []string{"HC-001 fail"}},
		{Name: "an etcd that is away", Break: hostedCondition("EtcdAvailable", "False", "QuorumLost"), Want: []string{"HC-002 fail"}},
		{Name: "machines on another network", Break: func(s *Site) {
			s.Add("apiVersion: hypershift.openshift.io/v1beta1\nkind: NodePool\nmetadata: {name: others, namespace: $ns}\nspec:\n  clusterName: demo\n  replicas: 1\n  management: {upgradeType: Replace}\n" +
				"  release: {image: registry.example.com/release:4.20}\n  platform: {type: KubeVirt, kubevirt: {attachDefaultNetwork: false, additionalNetworks: [{name: default/vlan7}]}}\n")
		}, Want: []string{"HC-004 fail"}},
		{Name: "no network", Break: noNetwork, Want: []string{"NET-001 fail"}},
		{Name: "a network with an ipam", Break: network(`{"cniVersion": "0.3.1", "name": "vlan50", "type": "bridge", "bridge": "vlan50", "ipam": {"type": "whereabouts"}}`), Want: []string{"NET-002 fail"}},
		{Name: "two machines at one address", Break: twoMachines, Want: []string{"NET-004 fail"}},
		{Name: "a cluster DNS that is asked, and asks us", Break: func(s *Site) { roundAndRound(s, "kube-system", "kube-dns") }, Want: []string{"DNS-003 fail"}},
		{Name: "a cluster DNS that does not forward", Break: func(s *Site) {
			s.Patch(configMapKind, "kube-system", "coredns", `{"data": {"Corefile": ".:53 {\n    ready\n    reload 2s\n}\n"}}`) // without reload it would never see that it was mended
		}, Want: []string{"DNS-004 warn"}},
		{Name: "an address that was declined", Break: declined(158), Want: []string{"DHCP-004 warn"}},
		{Name: "a lease outside of the ranges", Break: outside(201), Want: []string{"DHCP-003 warn"}},
		{Name: "machines that are told of other DNS servers", Break: otherDNS, Want: []string{"DHCP-006 fail"}},
		{Name: "no endpoint of the API server", Break: func(s *Site) { s.Remove(sliceKind, "$ns-demo", "kube-apiserver-1") }, Want: []string{"PRX-002 fail"}},
		{Name: "no konnectivity", Break: noKonnectivity, Want: []string{"PRX-002 fail"}},
		{Name: "konnectivity at the port of old samples", Break: oldSample("konnectivity-server", 8132), Want: []string{"PRX-002 fail"}},
		{Name: "policies that keep the proxy out", Break: func(s *Site) {
			s.Add("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: kas, namespace: $ns-demo}\nspec: {podSelector: {matchLabels: {app: kube-apiserver}}, policyTypes: [Ingress]}\n")
			shutOut(s)
		}, Want: []string{"PRX-005 fail"}},
		{Name: "a Service of the old operator", Break: leftover("v1", "Service", "spec: {ports: [{port: 67}]}"), Want: []string{"OLD-001 fail"}},
	}
}

// vlanFaults are seen from the VLAN alone.
func vlanFaults() []Fault {
	return []Fault{
		{Name: "DNS that has lost its interface on the VLAN", Probe: true, Break: unplugged("demo-dns-0"), Want: []string{"PRB-001 fail"}},
		{Name: "DHCP that has lost its interface on the VLAN", Probe: true, Break: unplugged("demo-dhcp-0"), Want: []string{"PRB-003 fail"}},
		{Name: "a proxy that has lost its interface on the VLAN", Probe: true, Break: unplugged("demo-proxy-0"), Want: []string{"PRB-006 fail"}},
		{Name: "another DHCP server", Probe: true, Break: func(s *Site) { s.Undo(s.Node.OtherDHCP(s.T)) }, Want: []string{"PRB-004 fail"}},
		{Name: "other DNS servers, handed out", Probe: true, Break: func(s *Site) {
			config, _, _ := unstructured.NestedStringMap(s.There(configMapKind, "$ns", "demo-dhcp").Object, "data")
			for file, text := range config {
				config[file] = strings.ReplaceAll(text, s.Net+".6", "203.0.113.53")
			}
			s.Patch(configMapKind, "$ns", "demo-dhcp", `{"data": `+quote(config)+`}`)
			s.restarted("demo-dhcp-0")
		}, Want: []string{"PRB-005 fail", "INF-002 warn"}},
		{Name: "a view that was edited", Probe: true, Break: func(s *Site) {
			config, _, _ := unstructured.NestedString(s.There(configMapKind, "$ns", "demo-dns").Object, "data", "Corefile")
			config = strings.Replace(config, "view vlan", "view pod", 1)
			s.Patch(configMapKind, "$ns", "demo-dns", `{"data": {"Corefile": `+quote(config)+`}}`)
			s.restarted("demo-dns-0")
		}, Want: []string{"PRB-002 fail", "INF-002 warn"}},
		{Name: "a certificate that has expired", Probe: true, Break: instead("konnectivity-server", "192.0.2.85:8091", true, "konnectivity.demo.lab.example.com"), Want: []string{"PRB-008 fail"}},
		{Name: "a certificate for two servers", Probe: true, Break: instead("ignition-server-proxy", "192.0.2.86:8443", false, "ignition.demo.lab.example.com", "konnectivity.demo.lab.example.com"), Want: []string{"PRB-009 warn"}},
		{Name: "a certificate for others", Probe: true, Break: instead("ignition-server-proxy", "192.0.2.86:8443", false, "ignition.other.example.com"), Want: []string{"PRB-007 fail"}},
	}
}

// unplugged is a pod whose interface on the VLAN is down.
func unplugged(pod string) func(*Site) {
	return func(s *Site) {
		s.Undo(func() { s.restart(pod) }) // which has its routes again
		s.Node.InNetworkOf(s.T, pod, "ip", "link", "set", "net1", "down")
	}
}

// instead has a Service lead to another server.
func instead(service, address string, expired bool, names ...string) func(*Site) {
	return func(s *Site) {
		s.Undo(s.Node.TLSServer(s.T, address, expired, names...))
		host, _, _ := strings.Cut(address, ":")
		s.Patch(sliceKind, "$ns-demo", service+"-1", `{"endpoints": [{"addresses": [`+quote(host)+`], "conditions": {"ready": true}}]}`)
	}
}

// frozen is a container whose processes do nothing any more.
func frozen(pod, container string) func(*Site) {
	return func(s *Site) { s.Undo(s.Node.Freeze(s.T, pod, container)) }
}

// restart has a pod begin anew.
func (s *Site) restart(pod string) {
	s.Helper()
	before := s.There(podKind, "$ns", pod)
	if before == nil {
		return // it is about to begin
	}
	if err := s.Client.Delete(s.Context(), before); err != nil {
		s.Fatal(err)
	}
	s.Await("Pod "+pod+" to be gone", func() bool {
		now := s.There(podKind, "$ns", pod)
		return now == nil || now.GetUID() != before.GetUID()
	})
}

// restarted has a pod begin anew, and again when what it begins with is mended: a StatefulSet
// waits for ever for a pod that does not start.
func (s *Site) restarted(pod string) {
	s.Helper()
	undo := s.undo
	s.undo = nil
	s.Undo(func() { s.restart(pod) })
	s.undo = append(s.undo, undo...)
	s.restart(pod)
}

// awaitRestarts waits until the containers of a pod have been started anew so often.
func (s *Site) awaitRestarts(pod string, want int64) {
	s.Helper()
	s.Await(fmt.Sprintf("%s to have restarted", pod), func() bool {
		statuses, _, _ := unstructured.NestedSlice(s.There(podKind, "$ns", pod).Object, "status", "containerStatuses")
		for _, c := range statuses {
			c, _ := c.(map[string]any)
			if n, _ := c["restartCount"].(int64); n >= want && c["ready"] == true {
				return true
			}
		}
		return false
	})
}

// template changes the pods of a StatefulSet, the first of which begins anew when it is mended.
func (s *Site) template(name string, change func(spec map[string]any)) {
	s.Helper()
	set := s.There(setKind, "$ns", name)
	spec, _, err := unstructured.NestedMap(set.Object, "spec", "template", "spec")
	if err != nil {
		s.Fatal(err)
	}
	change(spec)
	s.Undo(func() { s.restart(name + "-0") })
	s.Patch(setKind, "$ns", name, `{"spec": {"template": {"spec": `+quote(spec)+`}}}`)
}

// container is the first of a pod's.
func container(spec map[string]any) map[string]any {
	containers, _ := spec["containers"].([]any)
	first, _ := containers[0].(map[string]any)
	return first
}

// security is a pod's securityContext.
func security(spec map[string]any) map[string]any {
	c, _ := spec["securityContext"].(map[string]any)
	return c
}
