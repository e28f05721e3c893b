package rights_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// demo has the names of the hosted cluster's objects.
var demo = lab.Site{Network: "vlan100"}

// infra is the Infra that is set up.
var infra = demo.Infra("spec: {networkConfig: {dnsServers: [192.0.2.1]}, appsIngress: {enabled: true, metallb: {addressPoolName: vlan, loadBalancerClass: metallb.io/vlan}}}")

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
	s.client, s.kube = s.management.Client(t), s.management.Kube(t)
	s.guest, s.guestKube = s.hosted.Client(t), s.hosted.Kube(t)
	envoy, err := lab.FindEnvoy(t.Context(), nil)
	lab.Must(t, err)
	s.image = map[string]string{"/envoy": envoy}
	for _, name := range []string{"coredns", "coredhcp", "xdsd"} {
		s.image["/"+name] = network.Binary(t, name)
	}
	lab.SharedInterfaces(t, map[string][]string{
		vlanDevice: {"192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.3.2", "192.0.3.3", "192.0.3.4"},
		podDevice:  {proxyPod, dnsPod, dhcpPod, controlPod, controlPod2},
	})
	s.hosted.MustApply(t, lab.Namespaces("openshift-ingress", "metallb-system"),
		"{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: vlan, namespace: metallb-system}, spec: {addresses: [192.0.2.200/32]}}")
	cluster := demo.HostedClusterWithHosts()
	s.management.MustApply(t, demo.Namespaces(), lab.BridgeNetwork("clusters", "vlan100", "br-vlan100"), cluster.YAML())
	s.controlPlane(cluster)
	s.setup(infra)
	return s
}

// controlPlane publishes the hosted cluster's API server, and stand-ins for the other servers of its control
// plane.
func (s *site) controlPlane(cluster lab.HostedCluster) {
	s.Helper()
	server, err := url.Parse(s.hosted.ServerURL())
	lab.Must(s, err)
	api := netip.MustParseAddrPort(server.Host)
	ca := lab.NewCA(s.T)
	s.management.MustApply(s.T, cluster.Backend("kube-apiserver", int(api.Port()), api, hostedAddress)+
		cluster.Backend("oauth-openshift", 6443, ca.TLSBackend(s.T, "198.18.0.82:6443", "oauth."+domain).Addr(), "")+
		cluster.Backend("ignition-server-proxy", 443, ca.TLSBackend(s.T, "198.18.0.83:8443", "ignition."+domain).Addr(), "")+
		cluster.Backend("konnectivity-server", 8091, ca.TLSBackend(s.T, "198.18.0.84:8091", "konnectivity."+domain).Addr(), ""))

	// The admin kubeconfig has the public name, which does not resolve here.
	lab.Must(s, cluster.PublishKubeconfig(s.Context(), s.management, s.hosted))
}

// setup runs kubectl oooi setup.
func (s *site) setup(infra string) {
	s.Helper()
	r := lab.Execute(s, lab.WaitTimeout, network.Binary(s.T, "kubectl-oooi"), "setup", "-f", lab.WriteFile(s, infra, s.TempDir(), "infra.yaml"),
		"--image", "localhost/oooi:test", "--wait=false", "--kubeconfig", s.management.Kubeconfig())
	if r.Code != 0 {
		s.Fatalf("setup: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// machine creates a running VM with a MAC address and changes as for lab.Site.
func (s *site) machine(name, mac string, changes ...string) {
	s.Helper()
	s.management.MustApply(s.T, demo.VirtualMachine(name))
	vm := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"}}
	lab.Must(s, s.client.Get(s.Context(), client.ObjectKey{Namespace: "clusters-demo", Name: name}, vm))
	s.management.MustApply(s.T, demo.VirtualMachineInstance(name, mac, append(changes, lab.OwnedByVM(name, string(vm.UID)))...))
}

// reserved is a change to a VM: the address that is reserved for it.
func reserved(address string) string {
	return "metadata: {annotations: {hostedcluster.densityops.com/dhcp-addresses: " + address + "}}"
}

// lease creates a Lease as an earlier DHCP server would have.
func (s *site) lease(address, state, holder string, used time.Time, changes ...string) {
	s.Helper()
	s.management.MustApply(s.T, demo.Lease(address, state, holder, used, changes...))
}

// expired is a change to a declined Lease: its quarantine is over.
const expired = `metadata: {annotations: {leasedb.densityops.com/expires: "2026-01-02T03:16:00Z"}}`

// unlabelledLease creates a Lease without labels, which DHCP servers do not list and only find by a conflict.
func (s *site) unlabelledLease(address, holder string) {
	s.Helper()
	yaml := demo.Lease(address, "bound", holder, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "{metadata: {labels: null}, spec: {leaseDurationSeconds: null}}")
	lab.Must(s, s.management.DeleteYAML(s.Context(), []byte(yaml)))
	s.management.MustApply(s.T, yaml)
}

// leaseState returns the state in the label of a Lease, or "" if the Lease does not exist.
func (s *site) leaseState(address string) string {
	s.Helper()
	lease, err := s.kube.CoordinationV1().Leases("clusters").Get(s.Context(), "clusters.demo."+address, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	lab.Must(s, err)
	return lease.Labels["leasedb.densityops.com/state"]
}

// getInfra returns the Infra.
func (s *site) getInfra() *v1alpha1.Infra {
	s.Helper()
	o := &v1alpha1.Infra{}
	lab.Must(s, s.client.Get(s.Context(), client.ObjectKey{Namespace: "clusters", Name: "demo"}, o))
	return o
}

// updateInfra changes the Infra's spec.
func (s *site) updateInfra(f func(*v1alpha1.Infra)) {
	s.Helper()
	lab.Await(s.T, "the Infra to be updated", func() string {
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
	lab.Await(s.T, "the Infra to be ready", func() string {
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
	lab.AssignAddresses(s.T, s.guest, "openshift-ingress", "demo-apps", "192.0.2.200")
}

// readerSecret returns the Secret with the reader's credentials, or nil if it does not exist.
func (s *site) readerSecret() *corev1.Secret {
	s.Helper()
	o := &corev1.Secret{}
	err := s.client.Get(s.Context(), client.ObjectKey{Namespace: "clusters", Name: "demo-apps-reader"}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	lab.Must(s, err)
	return o
}
