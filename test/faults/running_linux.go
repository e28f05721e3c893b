package faults

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// Running is a site on an API server without nodes whose daemons run, from their binaries and as their pods
// specify. The lab takes the place of the kubelet and Multus.
type Running struct {
	*Site

	// Hosted is the hosted cluster's control plane, and HostedClient a client of it.
	Hosted       *lab.ControlPlane
	HostedClient client.Client
	// Network has the binaries.
	Network *lab.Network
	// Pods are the running pods by component; control's pods are control and control2.
	Pods map[string]*lab.Pod
	// Backends are the servers of the hosted control plane and of applications, by Service.
	Backends map[string]*lab.Backend

	ca     *lab.CA
	parent *testing.T // outlives the test of a single fault
}

// podAddresses are addresses in the pod network by the keys of Pods. The API server rejects loopback and
// link-local addresses.
var podAddresses = map[string]string{"proxy": "198.19.0.11", "dns": "198.19.0.12", "dhcp": "198.19.0.13", "control": "198.19.0.14", "control2": "198.19.0.15"}

// HostedAddress is the address at which the hosted cluster's API server listens. It is a cluster IP of the
// management cluster, so that clients can connect to its Service.
const HostedAddress = "10.96.0.77"

// upstreamResolver is the address of the upstream resolver.
const upstreamResolver = "198.18.0.53"

// RunningDomain is the domain of the hosted cluster.
const RunningDomain = "demo.example.com"

// RunningNetwork returns the network namespace that a running site needs.
func RunningNetwork() lab.Network {
	return lab.Network{
		Ranges:  []string{"10.96.0.0/16", "198.18.0.0/24", "192.0.2.200/32", "192.0.2.220/32"},
		Build:   []string{"coredns", "coredhcp", "xdsd", "kubectl-oooi"},
		Sources: []string{"api", "internal", "xdsd", "plugins", "corednsbuild", "coredhcpbuild", "kubectl-oooi", "manifests"},
		Prepare: func(ctx context.Context) error {
			_, err := lab.FindEnvoy(ctx, nil)
			return err
		},
	}
}

// demo names the objects of the site.
var demo = lab.Site{Network: "vlan100"}

// runningInfra is the Infra that setup deploys.
var runningInfra = demo.Infra(`spec:
  networkConfig: {dnsServers: [198.18.0.53]}
  infraComponents: {dhcp: {rangeEnd: 192.0.2.29}}
  appsIngress: {enabled: true, metallb: {addressPoolName: vlan, ipAddressPoolRange: 192.0.2.200-192.0.2.209, loadBalancerClass: metallb.io/vlan}}`)

// Objects that faults change.
const (
	demoInfra     = "hostedcluster.densityops.com/v1alpha1 Infra clusters/demo"
	demoProxy     = "hostedcluster.densityops.com/v1alpha1 ProxyServer clusters/demo"
	hostedCluster = "hypershift.openshift.io/v1beta1 HostedCluster clusters/demo"
	nodePool      = "hypershift.openshift.io/v1beta1 NodePool clusters/workers"
	vlanNetwork   = "k8s.cni.cncf.io/v1 NetworkAttachmentDefinition clusters/vlan100"
	workerA       = "kubevirt.io/v1 VirtualMachineInstance clusters-demo/worker-a"
)

// microTime is the format of times of Leases.
const microTime = "2006-01-02T15:04:05.000000Z"

// condition returns a condition in JSON.
func condition(kind, status string) string {
	return fmt.Sprintf(`{"type": %q, "status": %q, "reason": "Test", "message": "x", "lastTransitionTime": "2026-01-02T03:04:05Z"}`, kind, status)
}

var runningCluster = demo.HostedClusterWithHosts()

// runningVM returns a VM that exists before setup, and its Lease.
func runningVM(digit string, address int) string {
	return demo.VirtualMachineInstance("worker-"+digit, "02:00:00:00:00:0"+digit, runningSince(longAgo)) +
		demo.Lease(demo.IP(address), "bound", "clusters-demo/worker-"+digit+"/vlan", time.Now())
}

// NewRunning returns a healthy running site in a network from RunningNetwork. It waits until the Infra is
// ready.
func NewRunning(t *testing.T, network *lab.Network, management, hosted *lab.ControlPlane) *Running {
	t.Helper()
	c, err := client.New(management.RESTConfig(), client.Options{})
	lab.Must(t, err)
	hostedClient, err := client.New(hosted.RESTConfig(), client.Options{})
	lab.Must(t, err)
	r := &Running{
		Site: &Site{
			T: t, ControlPlane: management, Client: c, Timeout: 2 * time.Minute,
		},
		Hosted: hosted, HostedClient: hostedClient, Network: network, Pods: map[string]*lab.Pod{}, Backends: map[string]*lab.Backend{}, parent: t,
	}
	r.Doctor = func(t *testing.T, args ...string) lab.Result {
		t.Helper()
		return r.Oooi(t, management.Kubeconfig(), append([]string{"doctor", "demo", "-n", "clusters"}, args...)...)
	}
	lab.SharedInterfaces(t, map[string][]string{
		"net1": {"192.0.2.2", "192.0.2.3", "192.0.2.4"}, "eth0": slices.Collect(maps.Values(podAddresses)),
	})
	hosted.MustApply(t, lab.Namespaces("openshift-ingress", "metallb-system"),
		"{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: vlan, namespace: metallb-system}, spec: {addresses: [192.0.2.200/32]}}",
		"{apiVersion: metallb.io/v1beta1, kind: ServiceL2Status, metadata: {name: demo-apps, namespace: metallb-system, "+
			"labels: {metallb.io/node: worker-a, metallb.io/service-name: demo-apps, metallb.io/service-namespace: openshift-ingress}}}")
	management.MustApply(t, demo.Namespaces(), "{apiVersion: operator.openshift.io/v1, kind: DNS, metadata: {name: default}, spec: {}}",
		lab.BridgeNetwork("clusters", "vlan100", "br-vlan100"), demo.NodePool("workers"), runningVM("a", 10), runningVM("b", 11), runningCluster.YAML())
	lab.ServeDNS(t, upstreamResolver+":53", func(w dns.ResponseWriter, query *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetReply(query)) // the client repeats it
	})
	r.startControlPlane()
	r.setup()
	r.start()
	r.undo = nil
	return r
}

// Oooi runs kubectl oooi with a kubeconfig.
func (r *Running) Oooi(t *testing.T, kubeconfig string, args ...string) lab.Result {
	t.Helper()
	return lab.Execute(t, 2*time.Minute, append([]string{r.Network.Binary(t, "kubectl-oooi"), "--kubeconfig", kubeconfig}, args...)...)
}

// startControlPlane publishes the hosted cluster's API server, starts servers in place of the other parts of
// its control plane, and writes the status that HyperShift would write.
func (r *Running) startControlPlane() {
	r.Helper()
	server, err := url.Parse(r.Hosted.ServerURL())
	lab.Must(r, err)
	// The lab's API servers choose their ports, and HyperShift's listens on 6443.
	api := netip.MustParseAddrPort(HostedAddress + ":6443")
	r.nft(fmt.Sprintf("table ip hosted {\n chain output {\n type nat hook output priority -100\n ip daddr %s tcp dport %d dnat to %s\n }\n}\n", api.Addr(), api.Port(), server.Host))
	r.ca = lab.NewCA(r.T)
	r.Apply(runningCluster.Backend("kube-apiserver", int(api.Port()), api, HostedAddress))
	for _, b := range []struct {
		name, at, host string
		port           int
	}{
		{"oauth-openshift", "198.18.0.82:6443", "oauth." + RunningDomain, 6443},
		{"ignition-server-proxy", "198.18.0.83:8443", "ignition." + RunningDomain, 443},
		{"konnectivity-server", "198.18.0.84:8091", "konnectivity." + RunningDomain, 8091},
	} {
		r.Backends[b.name] = r.ca.TLSBackend(r.T, b.at, b.host)
		r.Apply(runningCluster.Backend(b.name, b.port, r.Backends[b.name].Addr(), ""))
	}
	r.Backends["apps"] = r.ca.TLSBackend(r.T, "192.0.2.200:443", "*.apps."+RunningDomain)
	r.Backends["apps over HTTP"] = lab.HTTPBackend(r.T, "192.0.2.200:80", "apps")

	// The administrator's kubeconfig has the public name of the API server, which does not resolve here.
	lab.Must(r, runningCluster.PublishKubeconfig(r.Context(), r.ControlPlane, r.Hosted))
	r.PatchStatus(hostedCluster, `{"status": {"conditions": [`+condition("EtcdAvailable", "True")+`, `+condition("Degraded", "False")+`]}}`)
}

func (r *Running) setup() {
	r.Helper()
	file := lab.WriteFile(r, runningInfra, r.TempDir(), "infra.yaml")
	if a := r.Oooi(r.T, r.ControlPlane.Kubeconfig(), "setup", "-f", file, "--image", "localhost/oooi:test", "--wait=false", "--cluster-dns=patch"); a.Code != 0 {
		r.Fatalf("setup: exit code %d: %s%s", a.Code, a.Stdout, a.Stderr)
	}
}

// start runs the pods that the controllers created, and assigns the apps address.
func (r *Running) start() {
	r.Helper()
	envoy, err := lab.FindEnvoy(r.Context(), nil)
	lab.Must(r, err)
	runner := &lab.PodRunner{ControlPlane: r.ControlPlane, Client: r.ControlPlane.Kube(r), Programs: map[string]string{"/envoy": envoy}}
	for _, name := range []string{"coredns", "coredhcp", "xdsd"} {
		runner.Programs["/"+name] = r.Network.Binary(r.T, name)
	}
	r.run(runner, "oooi-system", "control", "control", "control2")
	for component, vlan := range map[string]string{"proxy": "192.0.2.4", "dns": "192.0.2.3", "dhcp": "192.0.2.2"} {
		r.run(runner, "clusters", component, component)
		r.Patch("v1 Pod clusters/"+r.Pods[component].Name, `{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status":
			"[{\"name\": \"ovn\", \"default\": true, \"ips\": [\"`+r.Pods[component].IP+`\"]}, {\"name\": \"x\", \"interface\": \"net1\", \"ips\": [\"`+vlan+`\"]}]"}}}`)
	}
	r.forwardServices()
	lab.AssignAddresses(r, r.HostedClient, "openshift-ingress", "demo-apps", "192.0.2.200")
	r.Await("the Infra to be ready", func() bool {
		infra := &v1alpha1.Infra{}
		lab.Must(r, runtime.DefaultUnstructuredConverter.FromUnstructured(r.mustGet(demoInfra).Object, infra))
		return meta.IsStatusConditionTrue(infra.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// forwardServices forwards queries to the cluster IP of DNS and connections to the proxy's cluster IP to their pods, as kube-proxy
// does.
func (r *Running) forwardServices() {
	r.Helper()
	clusterIP := func(name string) string {
		return r.field("v1 Service clusters/"+name, "spec", "clusterIP")
	}
	r.nft(fmt.Sprintf("table ip services {\n chain output {\n type nat hook output priority -100\n ip daddr %s udp dport 53 dnat to %s\n ip daddr %s meta l4proto tcp dnat to %s\n }\n}\n",
		clusterIP("demo-dns"), r.Pods["dns"].IP, clusterIP("demo-proxy"), r.Pods["proxy"].IP))
}

// run waits for the pods of a component and runs them under the given names.
func (r *Running) run(runner *lab.PodRunner, namespace, component string, names ...string) {
	r.Helper()
	list := &corev1.PodList{}
	r.Await(fmt.Sprintf("%d pods of %s", len(names), component), func() bool {
		err := r.Client.List(r.Context(), list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/part-of": "oooi", "app.kubernetes.io/component": component})
		return err == nil && len(list.Items) == len(names)
	})
	for i, name := range names {
		r.Pods[name] = runner.Start(r.T, &list.Items[i], podAddresses[name])
	}
}
