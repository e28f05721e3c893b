package ovn_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/test/lab"
)

// The VLAN's addresses, as infra has them.
var (
	gateway  = netip.MustParseAddr("192.0.2.1")
	floating = netip.MustParseAddr("192.0.2.4")
	beyond   = netip.MustParseAddr("198.51.100.7") // a client behind the VLAN's router
)

const port = 6443

const (
	machines = `{"cniVersion": "1.0.0", "name": "cluster_udn_vlan100", "netAttachDefName": "clusters/vlan100", "role": "secondary", "topology": "localnet", "type": "ovn-k8s-cni-overlay", "physicalNetworkName": "physnet", "vlanID": 100}`
	infra    = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: NS}
spec:
  hostedClusterRef: {name: demo}
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100, dnsServers: [203.0.113.53]}
  infraComponents:
    dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199}
    dns: {serverIP: 192.0.2.3}
    proxy: {serverIP: 192.0.2.4, instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6}, {ip: 192.0.2.7}]}
---
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: demo, namespace: NS}
spec:
  infraID: demo-x7k2p
  dns: {baseDomain: example.com}
  platform: {type: KubeVirt}
  services:
  - {service: APIServer, servicePublishingStrategy: {type: LoadBalancer, loadBalancer: {hostname: api.demo.example.com}}}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: NS}
spec: {config: 'MACHINES'}
`
)

// A site is what setup renders for a VLAN, and two nodes to run it on.
type site struct {
	*testing.T

	cp          *lab.ControlPlane
	ovn         *lab.OVN
	namespace   string
	definitions map[string]string // the configurations of NetworkAttachmentDefinitions, by namespace/name
	templates   map[string]corev1.PodTemplateSpec
	pods        int
}

func newSite(t *testing.T) *site {
	t.Helper()
	network.Need(t)
	s := &site{T: t, cp: management.Get(t), definitions: map[string]string{}, templates: map[string]corev1.PodTemplateSpec{}}
	s.namespace = s.cp.Namespace(t)
	s.render()
	s.ovn = lab.NewOVN(t, "n1", "n2")
	return s
}

// render has kubectl oooi print its objects.
func (s *site) render() {
	s.Helper()
	file := filepath.Join(s.TempDir(), "infra.yaml")
	text := strings.NewReplacer("MACHINES", strings.ReplaceAll(machines, "clusters/", s.namespace+"/"), "NS", s.namespace).Replace(infra)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	cmd := exec.CommandContext(s.Context(), network.Binary(s, "kubectl-oooi"), "setup", "-f", file, "--dry-run=client")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		s.Fatalf("kubectl oooi setup: %v\n%s", err, &stderr)
	}
	objects, err := lab.ParseYAML(stdout.Bytes())
	if err != nil {
		s.Fatal(err)
	}
	s.definitions[s.namespace+"/vlan100"] = strings.ReplaceAll(machines, "clusters/", s.namespace+"/")
	for _, o := range objects {
		switch o.GetKind() {
		case "NetworkAttachmentDefinition":
			s.definitions[o.GetNamespace()+"/"+o.GetName()], _, _ = unstructured.NestedString(o.Object, "spec", "config")
		case "StatefulSet":
			set := &appsv1.StatefulSet{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, set); err != nil {
				s.Fatal(err)
			}
			s.templates[set.Name] = set.Spec.Template
		case "Lease":
			if err := s.cp.Apply(s.Context(), o); err != nil {
				s.Fatal(err)
			}
		}
	}
}

// selection is the network that a pod asks for.
func (s *site) selection(name string) lab.NetworkSelection {
	s.Helper()
	selection, err := lab.NetworkSelectionOf(s.templates[name].Annotations)
	if err != nil {
		s.Fatalf("%s: %v", name, err)
	}
	return selection
}

// A pod is a network namespace with an interface on the VLAN and one in the pod network, by which its
// default route leads.
type pod struct {
	*lab.Namespace

	name, node, ip string
}

func (s *site) newPod(name, node string, selection lab.NetworkSelection) *pod {
	s.Helper()
	p := &pod{Namespace: lab.NewNamespace(s), name: name, node: node}
	s.pods++
	p.ip = fmt.Sprintf("10.9.%d.2", s.pods)
	router := fmt.Sprintf("10.9.%d.1", s.pods)
	if err := lab.Cable(lab.End{Addresses: []string{router + "/24"}}, lab.End{In: p.Namespace, Device: "eth0", Addresses: []string{p.ip + "/24"}}); err != nil {
		s.Fatal(err)
	}
	p.Run(s, "ip", "route", "add", "default", "via", router)
	s.attach(p.Namespace, node, selection)
	return p
}

// attach does what OVN-Kubernetes does, or fails the test where that would refuse the pod.
func (s *site) attach(to *lab.Namespace, node string, selection lab.NetworkSelection) {
	s.Helper()
	port, err := lab.PortOf(s.definitions[selection.Namespace+"/"+selection.Name], selection)
	if err != nil {
		s.Fatalf("OVN-Kubernetes refuses %+v: %v", selection, err)
	}
	s.ovn.Node(node).Attach(s, to, port)
}

// newVM is a VM's port on the VLAN, without an address.
func (s *site) newVM(node, mac string) *lab.Namespace {
	s.Helper()
	vm := lab.NewNamespace(s)
	s.attach(vm, node, lab.NetworkSelection{Namespace: s.namespace, Name: "vlan100", MAC: mac})
	return vm
}

// newRouter is the VLAN's router, on a switch beside the nodes, with a client behind it.
func (s *site) newRouter() *lab.Namespace {
	s.Helper()
	router := lab.NewNamespace(s)
	s.ovn.Access(s, router)
	router.Run(s, "ip", "address", "add", gateway.String()+"/24", "dev", "net1")
	router.Run(s, "ip", "address", "add", beyond.String()+"/32", "dev", "lo")
	return router
}

// A proxy is a pod with what holds the floating address, and a backend in the place of Envoy.
type proxy struct {
	*pod
	*lab.Daemon

	own netip.Addr
}

// newProxy starts the replica with an address, whose pod's network selection change may alter.
func (s *site) newProxy(own, node string, change func(*lab.NetworkSelection)) *proxy {
	s.Helper()
	name := "demo-proxy-" + strings.ReplaceAll(own, ".", "-")
	selection := s.selection(name)
	if change != nil {
		change(&selection)
	}
	p := &proxy{pod: s.newPod(name, node, selection), own: netip.MustParseAddr(own)}
	err := p.Do(func() error {
		lab.TCPBackend(s, fmt.Sprintf("[::]:%d", port), name)
		return lab.ServeReady(s, p.ip+":9901", func() bool { return true })
	})
	if err != nil {
		s.Fatal(err)
	}
	state := s.TempDir()
	p.Daemon = lab.NewDaemon(s, name, func() *exec.Cmd { return s.hold(p, state) })
	p.Start(s)
	return p
}

// hold is the command line of the container holder, with its capabilities.
func (s *site) hold(p *proxy, state string) *exec.Cmd {
	s.Helper()
	line := lab.HolderCommand(network.Binary(s, "xdsd"))
	for _, c := range s.templates[p.name].Spec.Containers {
		if c.Name != "holder" {
			continue
		}
		for _, arg := range c.Command[1:] {
			line = append(line, strings.NewReplacer("$(POD_NAME)", p.name+"-0", "$(POD_IP)", p.ip, "/var/lib/xdsd", state).Replace(arg))
		}
	}
	return p.Command(context.Background(), append(line, "--kubeconfig", s.cp.Kubeconfig())...)
}

// holding reports whether the replica has the floating address on its interface.
func (p *proxy) holding(t *testing.T) bool {
	t.Helper()
	return strings.Contains(p.Run(t, "ip", "-brief", "address", "show", "dev", "net1"), floating.String()+"/32")
}

// reached is the name of the proxy that a client reaches at an address; empty for none. The client has
// one address of several; the zero one is any.
func reached(t *testing.T, client *lab.Namespace, from, to netip.Addr) (by string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	by, _ = client.Greeting(ctx, from, netip.AddrPortFrom(to, port))
	return by
}
