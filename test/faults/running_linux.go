package faults

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// Pods are the running pods by component; those of control are control and control2.
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

// runningInfra is the Infra that setup deploys.
const runningInfra = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: clusters}
spec:
  hostedClusterRef: {name: demo}
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100, dnsServers: [198.18.0.53]}
  infraComponents:
    dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.10, rangeEnd: 192.0.2.29}
    dns: {serverIP: 192.0.2.3}
    proxy: {serverIP: 192.0.2.4}
  appsIngress: {enabled: true, metallb: {addressPoolName: vlan, ipAddressPoolRange: 192.0.2.200-192.0.2.209, loadBalancerClass: metallb.io/vlan}}
`

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

var runningCluster = lab.HostedCluster{
	Namespace: "clusters", Name: "demo", BaseDomain: "example.com", More: "  infraID: demo-x7k2p",
	Publishing: map[string]string{
		"OAuthServer": lab.PublishedRoute("oauth." + RunningDomain), "Konnectivity": lab.PublishedRoute("konnectivity." + RunningDomain), "Ignition": lab.PublishedRoute("ignition." + RunningDomain),
	},
}

// runningObjects are objects of the management cluster that exist before setup.
const runningObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: clusters}
---
apiVersion: v1
kind: Namespace
metadata: {name: clusters-demo}
---
apiVersion: operator.openshift.io/v1
kind: DNS
metadata: {name: default}
spec: {}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: clusters}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "br-vlan100"}'}
---
apiVersion: hypershift.openshift.io/v1beta1
kind: NodePool
metadata: {name: workers, namespace: clusters}
spec:
  clusterName: demo
  replicas: 2
  management: {upgradeType: Replace}
  release: {image: registry.example.com/release:4.20}
  platform: {type: KubeVirt, kubevirt: {attachDefaultNetwork: false, additionalNetworks: [{name: clusters/vlan100}]}}
---
`

// runningVM is a VM that exists before setup, and its Lease. The arguments are a digit of its name and MAC address, the last
// byte of its address, and the time.
const runningVM = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: worker-%[1]s, namespace: clusters-demo, labels: {hypershift.openshift.io/infra-id: demo-x7k2p}}
spec:
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: "02:00:00:00:00:0%[1]s"}]}}
  networks: [{name: vlan, multus: {networkName: clusters/vlan100}}]
status: {phase: Running, phaseTransitionTimestamps: [{phase: Running, phaseTransitionTimestamp: "2026-01-02T03:04:05Z"}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: clusters.demo.192.0.2.%[2]d, namespace: clusters, labels: {leasedb.densityops.com/pool: clusters.demo, leasedb.densityops.com/family: ipv4, leasedb.densityops.com/state: bound}}
spec: {holderIdentity: clusters-demo/worker-%[1]s/vlan, leaseDurationSeconds: 3600, renewTime: "%[3]s"}
---
`

// hostedObjects are objects of the hosted cluster that exist before setup.
const hostedObjects = `
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
---
apiVersion: metallb.io/v1beta1
kind: ServiceL2Status
metadata: {name: demo-apps, namespace: metallb-system, labels: {metallb.io/node: worker-a, metallb.io/service-name: demo-apps, metallb.io/service-namespace: openshift-ingress}}
`

// NewRunning returns a healthy running site in a network from RunningNetwork. It waits until the Infra is
// ready.
func NewRunning(t *testing.T, network *lab.Network, management, hosted *lab.ControlPlane) *Running {
	t.Helper()
	c, err := client.New(management.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hostedClient, err := client.New(hosted.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &Running{
		Site: &Site{
			T: t, ControlPlane: management, Client: c, Timeout: 2 * time.Minute,
		},
		Hosted: hosted, HostedClient: hostedClient, Network: network, Pods: map[string]*lab.Pod{}, Backends: map[string]*lab.Backend{}, parent: t,
	}
	r.Doctor = func(t *testing.T, args ...string) Output {
		t.Helper()
		return r.Oooi(t, management.Kubeconfig(), append([]string{"doctor", "demo", "-n", "clusters"}, args...)...)
	}
	lab.SharedInterfaces(t, map[string][]string{
		"net1": {"192.0.2.2", "192.0.2.3", "192.0.2.4"}, "eth0": slices.Collect(maps.Values(podAddresses)),
	})
	if err := hosted.ApplyYAML(t.Context(), []byte(hostedObjects)); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Format(microTime)
	r.Apply(runningObjects + fmt.Sprintf(runningVM, "a", 10, now) + fmt.Sprintf(runningVM, "b", 11, now) + runningCluster.YAML())
	lab.RunDNS(t, &dns.Server{Addr: upstreamResolver + ":53", Net: "udp", Handler: dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetReply(query)) // the client repeats it
	})})
	r.startControlPlane()
	r.setup()
	r.start()
	r.undo = nil
	return r
}

// Oooi runs kubectl oooi with a kubeconfig.
func (r *Running) Oooi(t *testing.T, kubeconfig string, args ...string) Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Network.Binary(t, "kubectl-oooi"), append([]string{"--kubeconfig", kubeconfig}, args...)...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return Output{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// startControlPlane publishes the hosted cluster's API server, starts servers in place of the other parts of
// its control plane, and writes the status that HyperShift would write.
func (r *Running) startControlPlane() {
	r.Helper()
	server, err := url.Parse(r.Hosted.ServerURL())
	if err != nil {
		r.Fatal(err)
	}
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
	if err := runningCluster.PublishKubeconfig(r.Context(), r.ControlPlane, r.Hosted); err != nil {
		r.Fatal(err)
	}
	r.PatchStatus(hostedCluster, `{"status": {"conditions": [`+condition("EtcdAvailable", "True")+`, `+condition("Degraded", "False")+`]}}`)
}

func (r *Running) setup() {
	r.Helper()
	file := filepath.Join(r.TempDir(), "infra.yaml")
	if err := os.WriteFile(file, []byte(runningInfra), 0o600); err != nil {
		r.Fatal(err)
	}
	if a := r.Oooi(r.T, r.ControlPlane.Kubeconfig(), "setup", "-f", file, "--image", "localhost/oooi:test", "--wait=false", "--cluster-dns=patch"); a.Code != 0 {
		r.Fatalf("setup: exit code %d: %s%s", a.Code, a.Stdout, a.Stderr)
	}
}

// start runs the pods that the controllers created, and assigns the apps address.
func (r *Running) start() {
	r.Helper()
	kube, err := kubernetes.NewForConfig(r.ControlPlane.RESTConfig())
	if err != nil {
		r.Fatal(err)
	}
	envoy, err := lab.FindEnvoy(r.Context(), nil)
	if err != nil {
		r.Fatal(err)
	}
	runner := &lab.PodRunner{ControlPlane: r.ControlPlane, Client: kube, Programs: map[string]string{"/envoy": envoy}}
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
	r.Await("the apps Service to take an address", func() bool {
		o := &corev1.Service{}
		if err := r.HostedClient.Get(r.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}, o); err != nil {
			return false
		}
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.200"}}
		return r.HostedClient.Status().Update(r.Context(), o) == nil
	})
	r.Await("the Infra to be ready", r.ready)
}

// forwardServices forwards queries to the cluster IP of DNS and connections to that of the proxy to their pods, as kube-proxy
// does.
func (r *Running) forwardServices() {
	r.Helper()
	clusterIP := func(name string) string {
		return r.field("v1 Service clusters/"+name, "spec", "clusterIP")
	}
	r.nft(fmt.Sprintf("table ip services {\n chain output {\n type nat hook output priority -100\n ip daddr %s udp dport 53 dnat to %s\n ip daddr %s meta l4proto tcp dnat to %s\n }\n}\n",
		clusterIP("demo-dns"), r.Pods["dns"].IP, clusterIP("demo-proxy"), r.Pods["proxy"].IP))
}

// ready reports whether the Infra's condition Ready is True.
func (r *Running) ready() bool {
	r.Helper()
	conditions, _, _ := unstructured.NestedSlice(r.mustGet(demoInfra).Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			return c["status"] == "True"
		}
	}
	return false
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
