package rights_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// The interfaces of a pod on the VLAN and in the pod network. Here all pods share them.
const (
	vlanDevice = "net1"
	podDevice  = "eth0"
)

// Addresses of the pods in the pod network.
const (
	proxyPod    = "198.19.0.11"
	dnsPod      = "198.19.0.12"
	dhcpPod     = "198.19.0.13"
	controlPod  = "198.19.0.14"
	controlPod2 = "198.19.0.15"
)

const domain = "demo.example.com"

// infra is the Infra that is set up.
const infra = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: clusters}
spec:
  hostedClusterRef: {name: demo}
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100, dnsServers: [192.0.2.1]}
  infraComponents:
    dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.10, rangeEnd: 192.0.2.99}
    dns: {serverIP: 192.0.2.3}
    proxy: {serverIP: 192.0.2.4}
  appsIngress: {enabled: true, metallb: {addressPoolName: vlan, loadBalancerClass: metallb.io/vlan}}
`

// site is a management cluster and a hosted one, with the objects that setup creates.
type site struct {
	*testing.T

	management, hosted *lab.ControlPlane
	client, guest      client.Client
	kube, guestKube    kubernetes.Interface
	image              map[string]string // programs by their paths in images
}

func newSite(t *testing.T) *site {
	t.Helper()
	network.Need(t)
	s := &site{T: t, management: management.Get(t), hosted: hosted.Get(t)}
	s.client, s.kube = clients(t, s.management)
	s.guest, s.guestKube = clients(t, s.hosted)
	envoy, err := lab.FindEnvoy(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.image = map[string]string{"/envoy": envoy}
	for _, name := range []string{"coredns", "coredhcp", "xdsd"} {
		s.image["/"+name] = network.Binary(t, name)
	}
	lab.SharedInterfaces(t, map[string][]string{
		vlanDevice: {"192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.3.2", "192.0.3.3", "192.0.3.4"},
		podDevice:  {proxyPod, dnsPod, dhcpPod, controlPod, controlPod2},
	})
	s.apply(s.hosted, `
apiVersion: v1
kind: Namespace
metadata: {name: openshift-ingress}
---
apiVersion: v1
kind: Namespace
metadata: {name: metallb-system}
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: vlan, namespace: metallb-system}
spec: {addresses: [192.0.2.200/32]}
`)
	cluster := lab.HostedCluster{
		Namespace: "clusters", Name: "demo", BaseDomain: "example.com", More: "  infraID: demo-x7k2p",
		Publishing: map[string]string{
			"OAuthServer": lab.PublishedRoute("oauth." + domain), "Konnectivity": lab.PublishedRoute("konnectivity." + domain), "Ignition": lab.PublishedRoute("ignition." + domain),
		},
	}
	s.apply(s.management, prerequisites+cluster.YAML())
	s.controlPlane(cluster)
	s.setup(infra)
	return s
}

func clients(t *testing.T, cp *lab.ControlPlane) (client.Client, kubernetes.Interface) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return cp.Client(t), kube
}

func (s *site) apply(cp *lab.ControlPlane, yaml string) {
	s.Helper()
	if err := cp.ApplyYAML(s.Context(), []byte(yaml)); err != nil {
		s.Fatal(err)
	}
}

// prerequisites are the namespaces and the VMs' network, which exist before setup runs.
const prerequisites = `
apiVersion: v1
kind: Namespace
metadata: {name: clusters}
---
apiVersion: v1
kind: Namespace
metadata: {name: clusters-demo}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: clusters}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "br-vlan100"}'}
---
`

// controlPlane publishes the hosted cluster's API server, and stand-ins for the other servers of its control
// plane.
func (s *site) controlPlane(cluster lab.HostedCluster) {
	s.Helper()
	server, err := url.Parse(s.hosted.ServerURL())
	if err != nil {
		s.Fatal(err)
	}
	api := netip.MustParseAddrPort(server.Host)
	ca := lab.NewCA(s.T)
	s.apply(s.management, cluster.Backend("kube-apiserver", int(api.Port()), api, hostedAddress)+
		cluster.Backend("oauth-openshift", 6443, ca.TLSBackend(s.T, "198.18.0.82:6443", "oauth."+domain).Addr(), "")+
		cluster.Backend("ignition-server-proxy", 443, ca.TLSBackend(s.T, "198.18.0.83:8443", "ignition."+domain).Addr(), "")+
		cluster.Backend("konnectivity-server", 8091, ca.TLSBackend(s.T, "198.18.0.84:8091", "konnectivity."+domain).Addr(), ""))

	// The admin kubeconfig has the public name, which does not resolve here.
	if err := cluster.PublishKubeconfig(s.Context(), s.management, s.hosted); err != nil {
		s.Fatal(err)
	}
}

// setup runs kubectl oooi setup.
func (s *site) setup(infra string) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "infra.yaml")
	if err := os.WriteFile(file, []byte(infra), 0o600); err != nil {
		s.Fatal(err)
	}
	cmd := exec.CommandContext(s.Context(), network.Binary(s.T, "kubectl-oooi"),
		"setup", "-f", file, "--image", "localhost/oooi:test", "--wait=false", "--kubeconfig", s.management.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// machine creates a running VM with a MAC address and annotations.
func (s *site) machine(name, mac, annotations string) {
	s.Helper()
	s.apply(s.management, fmt.Sprintf("apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: %s, namespace: clusters-demo}\n", name))
	vm := &unstructured.Unstructured{}
	vm.SetAPIVersion("kubevirt.io/v1")
	vm.SetKind("VirtualMachine")
	if err := s.client.Get(s.Context(), client.ObjectKey{Namespace: "clusters-demo", Name: name}, vm); err != nil {
		s.Fatal(err)
	}
	s.apply(s.management, fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: %[1]s
  namespace: clusters-demo
  labels: {hypershift.openshift.io/infra-id: demo-x7k2p}
  annotations: {%[3]s}
  ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: %[1]s, uid: %[4]s, controller: true}]
spec:
  networks: [{name: vlan, multus: {networkName: clusters/vlan100}}]
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: %[2]q}]}}
`, name, mac, annotations, vm.GetUID()))
}

// lease creates a Lease as an earlier DHCP server would have.
func (s *site) lease(address, state, holder, annotations string, used time.Time) {
	s.Helper()
	s.apply(s.management, fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: clusters.demo.%s
  namespace: clusters
  labels: {leasedb.densityops.com/pool: clusters.demo, leasedb.densityops.com/family: ipv4, leasedb.densityops.com/state: %s}
  annotations: {%s}
spec: {holderIdentity: %s, leaseDurationSeconds: 3600, renewTime: %q}
`, address, state, annotations, holder, used.UTC().Format("2006-01-02T15:04:05.000000Z")))
}

// unlabelledLease creates a Lease without labels, which DHCP servers do not list and only find by a conflict.
func (s *site) unlabelledLease(address, holder string) {
	s.Helper()
	yaml := fmt.Sprintf("apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: clusters.demo.%s, namespace: clusters}\nspec: {holderIdentity: %s, renewTime: %q}\n",
		address, holder, "2026-01-02T03:04:05.000000Z")
	if err := s.management.DeleteYAML(s.Context(), []byte(yaml)); err != nil {
		s.Fatal(err)
	}
	s.apply(s.management, yaml)
}

// leaseState returns the state in the label of a Lease, or "" if the Lease does not exist.
func (s *site) leaseState(address string) string {
	s.Helper()
	lease, err := s.kube.CoordinationV1().Leases("clusters").Get(s.Context(), "clusters.demo."+address, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		s.Fatal(err)
	}
	return lease.Labels["leasedb.densityops.com/state"]
}

// getInfra returns the Infra.
func (s *site) getInfra() *v1alpha1.Infra {
	s.Helper()
	o := &v1alpha1.Infra{}
	if err := s.client.Get(s.Context(), client.ObjectKey{Namespace: "clusters", Name: "demo"}, o); err != nil {
		s.Fatal(err)
	}
	return o
}

// updateInfra changes the Infra's spec.
func (s *site) updateInfra(f func(*v1alpha1.Infra)) {
	s.Helper()
	await(s.T, "the Infra to be updated", func() string {
		o := s.getInfra()
		f(o)
		if err := s.client.Update(s.Context(), o); err != nil {
			return err.Error() // a conflict, for example
		}
		return ""
	})
}

// awaitReady waits until the condition Ready of the Infra's current generation is True.
func (s *site) awaitReady() {
	s.Helper()
	await(s.T, "the Infra to be ready", func() string {
		o := s.getInfra()
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		if c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.Generation {
			return ""
		}
		return fmt.Sprintf("%+v", c)
	})
}

// assignAppsAddress sets the address of the apps Service, as MetalLB does.
func (s *site) assignAppsAddress() {
	s.Helper()
	await(s.T, "the apps Service to be updated", func() string {
		o := &corev1.Service{}
		if err := s.guest.Get(s.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}, o); err != nil {
			return err.Error()
		}
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.200"}}
		if err := s.guest.Status().Update(s.Context(), o); err != nil {
			return err.Error()
		}
		return ""
	})
}

// readerSecret returns the Secret with the reader's credentials, or nil if it does not exist.
func (s *site) readerSecret() *corev1.Secret {
	s.Helper()
	o := &corev1.Secret{}
	err := s.client.Get(s.Context(), client.ObjectKey{Namespace: "clusters", Name: "demo-apps-reader"}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.Fatal(err)
	}
	return o
}

// dig queries the DNS server on the VLAN, and returns the addresses in the answer, or the rcode if there are
// none.
func (s *site) dig(name string) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
	defer cancel()
	c := dns.Client{Timeout: 5 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP("192.0.2.2")}}}
	reply, _, err := c.ExchangeContext(ctx, new(dns.Msg).SetQuestion(name+".", dns.TypeA), "192.0.2.3:53")
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, rr := range reply.Answer {
		list = append(list, dns.Field(rr, 1))
	}
	if len(list) == 0 {
		return dns.RcodeToString[reply.Rcode]
	}
	return strings.Join(list, " ")
}
