package ovn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/densityops/oooi/test/lab"
)

const vmNetwork = `{"cniVersion": "1.0.0", "name": "cluster_udn_vlan100", "netAttachDefName": "NS/vlan100", "role": "secondary", "topology": "localnet", "type": "ovn-k8s-cni-overlay", "physicalNetworkName": "physnet", "vlanID": 100}`

const (
	domain = "demo.example.com"
	api    = "api." + domain
)

// endpoints are the ports of the control-plane names.
var endpoints = map[string]uint16{api: 6443, "oauth." + domain: 443, "ignition." + domain: 443}

// infra is the change to the site's Infra.
const infra = `
spec:
  networkConfig: {additionalCIDRs: ["2001:db8::/64"], dnsServers: [203.0.113.53]}
  infraComponents:
    dhcp: {rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199}
    proxy:
      additionalServerIPs: ["2001:db8::4"]
      instances:
      - {ip: 192.0.2.5, additionalIPs: ["2001:db8::5"]}
      - {ip: 192.0.2.6, additionalIPs: ["2001:db8::6"]}
      - {ip: 192.0.2.7, additionalIPs: ["2001:db8::7"]}`

// A site is a hosted cluster, with the objects that setup renders for its VLAN, and two OVN nodes.
type site struct {
	*testing.T
	objects lab.Site

	cp          *lab.ControlPlane
	kube        kubernetes.Interface
	ca          *lab.CA // CA of the hosted control plane
	ovn         *overlay
	programs    map[string]string
	definitions map[string]string // configurations of NetworkAttachmentDefinitions by namespace/name
	templates   map[string]corev1.PodTemplateSpec
	pods        int
}

func newSite(t *testing.T) *site {
	t.Helper()
	network.Need(t)
	s := &site{T: t, cp: management.Get(t), ca: lab.NewCA(t), definitions: map[string]string{}, templates: map[string]corev1.PodTemplateSpec{}}
	s.objects = lab.Site{Namespace: s.cp.Namespace(t), Network: "vlan100"}
	envoy, err := lab.FindEnvoy(t.Context(), nil)
	lab.Must(t, err)
	s.programs = map[string]string{"/envoy": envoy}
	for _, name := range []string{"coredns", "coredhcp", "xdsd"} {
		s.programs["/"+name] = network.Binary(t, name)
	}
	s.kube = s.cp.Kube(t)
	s.render()
	// Servers with certificates for the control-plane names.
	cluster := s.objects.HostedCluster()
	s.cp.MustApply(t, cluster.Backend("kube-apiserver", 6443, s.ca.TLSBackend(t, "198.18.0.81:6443", api).Addr(), ""),
		cluster.Backend("oauth-openshift", 6443, s.ca.TLSBackend(t, "198.18.0.82:6443", "oauth."+domain).Addr(), ""),
		cluster.Backend("ignition-server-proxy", 443, s.ca.TLSBackend(t, "198.18.0.83:8443", "ignition."+domain).Addr(), ""))
	s.ovn = newOverlay(t, "n1", "n2")
	return s
}

// render applies the objects that kubectl oooi setup prints.
func (s *site) render() {
	s.Helper()
	definition := strings.ReplaceAll(vmNetwork, "NS", s.objects.Namespace)
	text := s.objects.HostedClusterWithHosts().YAML() + s.objects.Infra(infra) + fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: %s}
spec: {config: '%s'}
`, s.objects.Namespace, definition)
	file := lab.WriteFile(s, text, s.TempDir(), "infra.yaml")
	r := lab.Execute(s, lab.WaitTimeout, network.Binary(s, "kubectl-oooi"), "setup", "-f", file, "--image", "localhost/oooi:test", "--dry-run=client")
	if r.Code != 0 {
		s.Fatalf("kubectl oooi setup: exit code %d\n%s", r.Code, r.Stderr)
	}
	objects, err := lab.ParseYAML([]byte(r.Stdout))
	lab.Must(s, err)
	authority, err := json.Marshal(string(s.cp.RESTConfig().CAData))
	lab.Must(s, err)
	s.cp.MustApply(s, lab.Namespaces(s.objects.ControlPlaneNamespace()), text, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt, namespace: %s}, data: {ca.crt: %s}}", s.objects.Namespace, authority))
	s.definitions[s.objects.Namespace+"/vlan100"] = definition
	for _, o := range objects {
		switch o.GetKind() {
		case "CustomResourceDefinition":
			continue // shared by all tests
		case "NetworkAttachmentDefinition":
			s.definitions[o.GetNamespace()+"/"+o.GetName()], _, _ = unstructured.NestedString(o.Object, "spec", "config")
		case "StatefulSet":
			set := &appsv1.StatefulSet{}
			lab.Must(s, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, set))
			s.templates[set.Name] = set.Spec.Template
		}
		lab.Must(s, s.cp.Apply(s.Context(), o))
	}
}

// A pod is the pod of a StatefulSet on a node.
type pod struct {
	*lab.Namespace
	*lab.Pod

	node, mac string
}

// newPod starts a pod with an interface on the VLAN, and one in the pod network, which has its default route.
func (s *site) newPod(name, node string) *pod {
	s.Helper()
	template := s.templates[name]
	selection, err := lab.NetworkSelectionOf(template.Annotations)
	if err != nil {
		s.Fatalf("%s: %v", name, err)
	}
	s.pods++
	ip, router := fmt.Sprintf("10.9.%d.2", s.pods), fmt.Sprintf("10.9.%d.1", s.pods)
	p := &pod{Namespace: lab.NewNamespace(s), node: node}
	lab.Must(s, lab.Cable(lab.End{Addresses: []string{router + "/24"}}, lab.End{In: p.Namespace, Device: "eth0", Addresses: []string{ip + "/24"}}))
	p.Run(s, "ip", "route", "add", "default", "via", router)
	p.mac = s.attach(p.Namespace, node, selection)
	object := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
	object.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	object.Namespace, object.Name = s.objects.Namespace, name+"-0"
	lab.Must(s, s.cp.Apply(s.Context(), object))
	created, err := s.kube.CoreV1().Pods(s.objects.Namespace).Get(s.Context(), object.Name, metav1.GetOptions{})
	lab.Must(s, err)
	runner := &lab.PodRunner{ControlPlane: s.cp, Client: s.kube, Network: p.Namespace, Programs: s.programs}
	p.Pod = runner.Start(s, created, ip)
	return p
}

// attach attaches a namespace to a node's port like OVN-Kubernetes, and returns the interface's MAC address.
// The test fails if OVN-Kubernetes would reject the pod.
func (s *site) attach(to *lab.Namespace, node string, selection lab.NetworkSelection) (mac string) {
	s.Helper()
	port, err := lab.PortOf(s.definitions[selection.Namespace+"/"+selection.Name], selection)
	if err != nil {
		s.Fatalf("OVN-Kubernetes rejects %+v: %v", selection, err)
	}
	s.ovn.node(node).attach(s, to, port)
	return port.MAC
}

// newVM creates a VM of the hosted cluster on a node. Interface net1 lacks an address.
func (s *site) newVM(name, node, mac string) *lab.Machine {
	s.Helper()
	s.cp.MustApply(s, s.objects.VirtualMachineInstance(name, mac))
	vm := lab.MachineIn(s, lab.NewNamespace(s), "net1")
	s.attach(vm.Namespace, node, lab.NetworkSelection{Namespace: s.objects.Namespace, Name: "vlan100", MAC: mac})
	return vm
}

// A client connects to the proxy. from is its source address for IPv4; the zero value is any.
type client struct {
	*lab.Namespace

	from netip.Addr
}

// newRouter creates the VLAN's router, on a switch beside the nodes, and returns a client behind it.
func (s *site) newRouter() client {
	s.Helper()
	router, behind := lab.NewNamespace(s), netip.MustParseAddr("198.51.100.7")
	s.ovn.access(s, router)
	for _, a := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		router.Run(s, "ip", "address", "add", a, "dev", "net1", "nodad")
	}
	router.Run(s, "ip", "address", "add", behind.String(), "dev", "lo")
	return client{router, behind}
}

// resolve queries a DNS server on the VLAN, as lab.Resolve.
func (c client) resolve(t *testing.T, server, name string, kind uint16) (answer string) {
	t.Helper()
	lab.Must(t, c.Do(func() error {
		answer = lab.Resolve(t.Context(), "", net.JoinHostPort(server, "53"), name, kind)
		return nil
	}))
	return answer
}

// reach does a TLS handshake with an address, verifies the certificate for a name, and returns the name of
// the backend or the error.
func (c client) reach(t *testing.T, ca *lab.CA, to netip.AddrPort, name string) (backend string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	from := c.from
	if to.Addr().Is6() {
		from = netip.Addr{}
	}
	raw, err := c.Dial(ctx, from, to)
	if err != nil {
		return err.Error()
	}
	conn, backend, err := ca.Handshake(ctx, raw, name)
	if err != nil {
		return err.Error()
	}
	_ = conn.Close()
	return backend
}

// neighbour returns the MAC address in a client's neighbour entry for an address on the VLAN.
func (c client) neighbour(t *testing.T, of netip.Addr) string {
	t.Helper()
	_, rest, _ := strings.Cut(c.Run(t, "ip", "neighbour", "show", of.String(), "dev", "net1"), "lladdr ")
	mac, _, _ := strings.Cut(rest, " ")
	return mac
}
