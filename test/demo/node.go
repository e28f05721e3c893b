package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/test/lab"
)

// Images that the demo builds and imports to the node; they are in no registry.
const (
	oooiImage   = "localhost/oooi:demo"
	envoyImage  = "localhost/envoy:demo"
	clientImage = "localhost/client:demo"
)

// Addresses outside of the VLAN: of the API servers, of the servers that simulate the rest of the hosted control plane, and of
// the upstream resolver.
const (
	managementIP   = "192.0.2.1"
	hostedIP       = "192.0.2.10"
	oauthIP        = "192.0.2.11"
	ignitionIP     = "192.0.2.12"
	konnectivityIP = "192.0.2.13"
	resolverIP     = "192.0.2.53"
)

// Names and addresses on the VLAN, which is a Linux bridge.
const (
	nodeVLAN  = "vlan50"
	nodeDNS   = "198.18.50.3"
	nodeProxy = "198.18.50.4"
	nodeApps  = "198.18.50.200" // the first address of MetalLB's pool
	vmMAC     = "02:00:c6:12:32:01"
	vmName    = "demo-worker-6k8d2"
)

// ignitionName is a hostname that HyperShift generates, so it is in no spec.
const ignitionName = "ignition-4f2a." + domain

// infraYAML is the Infra that the demo shows.
const infraYAML = `apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: clusters}
spec:
  hostedClusterRef: {name: demo}
  networkConfig: {cidr: 198.18.50.0/24, gateway: 198.18.50.1, networkAttachmentDefinition: vlan50, dnsServers: [192.0.2.53]}
  infraComponents:
    dhcp: {serverIP: 198.18.50.2, rangeStart: 198.18.50.100, rangeEnd: 198.18.50.199}
    dns: {serverIP: 198.18.50.3}
    proxy: {serverIP: 198.18.50.4}
  appsIngress:
    enabled: true
    metallb: {addressPoolName: vlan50, ipAddressPoolRange: 198.18.50.200-198.18.50.207, loadBalancerClass: metallb.io/vlan}
`

// hostedObjects returns the objects of a hosted cluster: MetalLB's pool, and the namespace of the default router.
func hostedObjects(pool string) string {
	return lab.Namespaces("openshift-ingress") + `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: vlan50, namespace: metallb-system}
spec: {addresses: [` + pool + `]}
`
}

// announcement are the objects of MetalLB's speaker. The demo configures the apps address on the VLAN instead of the speaker, and
// reports it in the same way.
const announcement = `
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: vlan50, namespace: metallb-system}
spec: {ipAddressPools: [vlan50]}
---
apiVersion: metallb.io/v1beta1
kind: ServiceL2Status
metadata:
  name: demo-apps
  namespace: metallb-system
  labels: {metallb.io/node: demo-worker-6k8d2, metallb.io/service-name: demo-apps, metallb.io/service-namespace: openshift-ingress}
`

// A nodeShow is the show with a node: the clusters, the servers behind the proxy, and a VM.
type nodeShow struct {
	*show

	management, hosted *lab.ControlPlane
	node               *lab.Node
	imports            errgroup.Group // of images that setup does not need
	machine            *virtualMachine
	vm                 client
}

// playOnNode runs the demo with kubectl oooi and the daemons as pods of a node.
func playOnNode(s *show) {
	n := &nodeShow{show: s}
	n.start()
	n.writePrograms()
	n.vm = client{show: s, prompt: "vm$", through: []string{n.program("vm")}}
	n.showSetup()
	n.showVM()
	n.showPod()
	n.showReports()
	n.showChange()
	if !s.stay {
		n.printf("\n# Delete everything.\n")
		n.oooi("teardown demo -n clusters --yes", "Infra clusters/demo deleted")
		n.oooi("status -n clusters", "No resources found in clusters namespace.")
	}
	n.sum()
	if s.stay {
		n.prompt()
	}
}

// start starts a management cluster with a node, the control plane of a hosted cluster, and the VLAN with a VM.
func (n *nodeShow) start() {
	began := time.Now()
	group, ctx := errgroup.WithContext(n.ctx)
	group.Go(func() (err error) {
		// oooi's CRDs are not among these, because setup creates them.
		if n.management, err = lab.Start(ctx, lab.Config{
			Name: "management", Dir: filepath.Join(n.dir, "management"), Address: managementIP, ControllerManager: true, Scheduler: true,
			CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.KubeVirt, lab.KubeVirtMachines},
		}); err == nil {
			n.node, err = lab.StartNode(ctx, n.management, lab.NodeConfig{Bridges: []string{nodeVLAN}, Images: []string{oooiImage, envoyImage}})
		}
		return err
	})
	group.Go(func() (err error) {
		n.hosted, err = startHosted(ctx, lab.Config{Dir: filepath.Join(n.dir, "hosted"), Address: hostedIP},
			hostedObjects("198.18.50.200-198.18.50.207")+announcement)
		return err
	})
	err := group.Wait()
	n.stopAtEnd(n.management, n.hosted)
	n.Cleanup(func() {
		if n.node != nil {
			n.check(n.node.Stop())
		}
	})
	n.check(err)
	n.imports.Go(func() error { return n.node.ImportImage(n.ctx, clientImage) })
	n.startServers()
	n.startResolver(resolverIP)
	n.publish()
	n.machine = n.newVM(nodeVLAN, vmMAC)
	progress("started a management cluster with a node, and a hosted control plane, in %.1f s", time.Since(began).Seconds())
}

// startHosted starts the API server and MetalLB of a hosted cluster.
func startHosted(ctx context.Context, config lab.Config, objects string) (*lab.ControlPlane, error) {
	config.Name, config.ServiceCIDR, config.ServerNames = "hosted", "172.31.0.0/16", []string{"api." + domain}
	hosted, err := lab.Start(ctx, config)
	if err == nil {
		err = hosted.StartMetalLB(ctx, lab.MetalLBConfig{LoadBalancerClass: "metallb.io/vlan"})
	}
	if err == nil {
		err = hosted.ApplyYAML(ctx, []byte(objects))
	}
	return hosted, err
}

// stopAtEnd stops the control planes that have been started at the end of the show.
func (s *show) stopAtEnd(list ...*lab.ControlPlane) {
	for _, cp := range list {
		if cp != nil {
			s.Cleanup(func() { s.check(cp.Stop()) })
		}
	}
}

// startServers starts servers that simulate the rest of the hosted control plane, and the router of apps on the VLAN. They reply
// with their name and the request.
func (n *nodeShow) startServers() {
	n.output("ip", "address", "add", nodeApps+"/24", "dev", nodeVLAN)
	for _, server := range []struct {
		name, address string
		hosts         []string
	}{
		{"oauth", oauthIP + ":6443", oauthNames},
		{"ignition", ignitionIP + ":443", []string{"ignition." + domain, ignitionName}},
		{"konnectivity", konnectivityIP + ":8091", []string{"konnectivity." + domain}},
		{"shop", nodeApps + ":443", []string{shopName, "console-openshift-console.apps." + domain}}, // the router of both
	} {
		lab.ServeHTTP(n, server.address, named(server.name, true), n.certificate(server.name, server.hosts...))
	}
	// Like OpenShift's router, redirect from port 80.
	lab.ServeHTTP(n, nodeApps+":80", http.RedirectHandler("https://"+shopName+"/", http.StatusFound))
	n.write("api.crt", string(n.hosted.CA()))
}

// publish applies the hosted cluster, its VM and the Services of its control plane, which select no pods, because the demo runs
// the servers behind them. Multus isolates namespaces, so the network has a NetworkAttachmentDefinition in the Infra's namespace and
// in the VMs' namespace.
func (n *nodeShow) publish() {
	const controlPlane = "clusters-demo"
	hosted, err := url.Parse(n.hosted.ServerURL())
	n.check(err)
	inVMs := site
	inVMs.Network = controlPlane + "/vlan50"
	objects := []string{
		lab.Merge("{apiVersion: v1, kind: Namespace, metadata: {name: clusters, labels: {pod-security.kubernetes.io/enforce: restricted}}}"),
		lab.Namespaces(controlPlane), lab.BridgeNetwork("clusters", "vlan50", nodeVLAN), lab.BridgeNetwork(controlPlane, "vlan50", nodeVLAN),
		inVMs.VirtualMachineInstance(vmName, vmMAC), site.HostedClusterWithHosts().YAML(),
	}
	for _, service := range []struct {
		name          string
		port          int
		address, from string
	}{
		{"kube-apiserver", 6443, hostedIP, hosted.Port()}, {"oauth-openshift", 6443, oauthIP, "6443"},
		{"ignition-server-proxy", 443, ignitionIP, "443"}, {"konnectivity-server", 8091, konnectivityIP, "8091"},
	} {
		at := netip.MustParseAddrPort(service.address + ":" + service.from)
		objects = append(objects, site.HostedCluster().Backend(service.name, service.port, at, ""))
	}
	n.management.MustApply(n, objects...)
	cluster := site.HostedCluster()
	n.check(cluster.PublishKubeconfig(n.ctx, n.management, n.hosted))
	// The servers' certificates have separate CAs.
	n.check(n.management.Apply(n.ctx, cluster.RootCA(append(n.hosted.CA(), n.read("oauth.crt")...)), cluster.KonnectivityCA(n.read("konnectivity.crt"))))
}

func (s *show) read(name string) []byte {
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	s.check(err)
	return text
}

// showSetup runs setup, and waits for the apps address.
func (n *nodeShow) showSetup() {
	n.write("infra.yaml", infraYAML)
	n.printf("\n# The VMs of a hosted cluster are on an isolated VLAN. An Infra describes the services for this VLAN:\n$ cat infra.yaml\n%s", infraYAML)
	n.oooi("setup -f infra.yaml --image "+oooiImage+" --envoy-image "+envoyImage, "Infra clusters/demo created", "every component works, after")
	n.printf("\n# xdsd control creates the apps Service in the hosted cluster, and MetalLB assigns it an address.\n")
	n.showApps(n.management, `Ready ["`+nodeApps+`"]`)
}

// oooi runs kubectl oooi, and checks that its output contains the wanted texts. It gives up later than kubectl oooi does by
// default, after 5 minutes, whose error names what it waited for.
func (n *nodeShow) oooi(arguments string, wanted ...string) {
	ctx, cancel := context.WithTimeout(n.ctx, 6*time.Minute)
	defer cancel()
	n.run(n.command(ctx, n.program("kubectl-oooi"), strings.Fields(arguments)...), "kubectl oooi "+arguments, wanted...)
}

// showVM boots a VM, which resolves names and connects with the settings that it gets from DHCP.
func (n *nodeShow) showVM() {
	n.printf("\n# A VM of the hosted cluster boots: a network namespace on the VLAN, with the MAC address of a VirtualMachineInstance.\n")
	n.machine.boot("198.18.50.0/24", nodeDNS, vmName)
	n.printf("\n# It queries the DNS server in its lease, connects through the proxy, and verifies the certificates of the hosted control plane.\n")
	n.vm.visit(visit{url: "https://api." + domain + ":6443/version", trust: "api.crt", dns: only(nodeProxy), reply: `"gitVersion": "v`})
	for _, name := range []string{"oauth", "ignition", "konnectivity"} {
		host := name + "." + domain
		n.vm.visit(visit{url: "https://" + host + "/", trust: name + ".crt", dns: only(nodeProxy), reply: name + ": request for " + host})
	}
	n.vm.visit(visit{
		"The apps address is on the VLAN, where MetalLB announces it", "https://" + shopName + "/", "shop.crt", only(nodeApps), "shop: request for " + shopName,
	})
	n.printf("\n# DNS forwards all other names to the upstream resolver.\n")
	n.vm.ask("www.example.com", "A", forwarded)
}

// showPod connects by the same names from a pod of the management cluster whose resolver is the Service of oooi's DNS.
func (n *nodeShow) showPod() {
	n.check(n.imports.Wait())
	var resolver, proxy corev1.Service
	n.get(n.management, "clusters", "demo-dns", &resolver)
	n.get(n.management, "clusters", "demo-proxy", &proxy)
	certificates, err := json.Marshal(map[string]string{"api.crt": string(n.read("api.crt")), "shop.crt": string(n.read("shop.crt"))})
	n.check(err)
	n.management.MustApply(n, `{apiVersion: v1, kind: ConfigMap, metadata: {name: certificates, namespace: default}, data: `+string(certificates)+"}", `
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec:
  dnsPolicy: None
  dnsConfig: {nameservers: [`+resolver.Spec.ClusterIP+`]}
  terminationGracePeriodSeconds: 1
  containers:
  - name: client
    image: `+clientImage+`
    command: [/bin/sleep, infinity]
    workingDir: /certificates
    volumeMounts: [{name: certificates, mountPath: /certificates}]
  volumes: [{name: certificates, configMap: {name: certificates}}]
`)
	var pod corev1.Pod
	n.await("pod client to run", func() (bool, string) {
		n.get(n.management, "default", "client", &pod)
		return pod.Status.Phase == corev1.PodRunning && len(pod.Status.ContainerStatuses) > 0, pod.Status.String()
	})
	c := client{show: n.show, prompt: "pod$", through: n.node.ExecLine(pod.Status.ContainerStatuses[0].ContainerID)}
	n.printf("\n# A pod of the management cluster uses the same names. They resolve to the proxy's Service; the proxy connects to apps from its VLAN address.\n")
	service := only(proxy.Spec.ClusterIP)
	c.visit(visit{url: "https://api." + domain + ":6443/version", trust: "api.crt", dns: service, reply: `"gitVersion": "v`})
	c.visit(visit{url: "https://" + shopName + "/", trust: "shop.crt", dns: service, reply: "shop: request for " + shopName + " from " + nodeProxy})
}

// showReports runs the read-only commands of kubectl oooi.
func (n *nodeShow) showReports() {
	n.printf("\n# The reports of kubectl oooi.\n")
	for _, report := range []struct{ command, wanted string }{
		{"status -n clusters", "demo clusters/demo" + strings.Repeat(" True", 3) + " " + nodeApps + " True"},
		{"routes -n clusters", "443 SNI oauth." + domain + " Service clusters-demo/oauth-openshift:6443"},
		{"leases -n clusters", vmMAC + " clusters-demo/" + vmName},
		{"resolve oauth." + domain, "Answer: " + nodeProxy},
		{"doctor demo -n clusters --probe --fail-on=warn", "Infra clusters/demo: no problems found"},
		{"test demo -n clusters --skip egress", "Infra clusters/demo: 24 passed, 3 skipped"},
	} {
		n.oooi(report.command, report.wanted)
	}
}

// showChange creates a Route, as HyperShift would, and prints how long it takes until the VM can connect by its hostname.
func (n *nodeShow) showChange() {
	n.printf("\n# HyperShift creates a Route with a generated hostname.\n")
	n.vm.ask(ignitionName, "A", nxDomain)
	roots := n.roots("ignition.crt")
	change := ignitionRoute(ignitionName)
	n.typeApply(change)
	took := n.applyAndWait(n.management, change, "the VM connecting by the new name", func(ctx context.Context) bool { return n.connects(ctx, ignitionName, roots) })
	n.printf("  the VM resolved the name and verified the backend's certificate %s after the API server accepted the change\n", took)
	n.vm.visit(visit{url: "https://" + ignitionName + "/", trust: "ignition.crt", dns: only(nodeProxy), reply: "ignition: request for " + ignitionName})
}

// connects reports whether the VM resolves the name to the proxy, connects to it, and verifies the certificate of the server.
func (n *nodeShow) connects(ctx context.Context, name string, roots *x509.CertPool) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer := ""
	n.check(n.machine.Do(func() error { // sockets that are opened here belong to the VM's network namespace
		answer = lab.Resolve(ctx, "", nodeDNS+":53", name, dns.TypeA)
		return nil
	}))
	if answer != nodeProxy {
		return false
	}
	conn, err := n.machine.Dial(ctx, netip.Addr{}, netip.MustParseAddrPort(nodeProxy+":443"))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // no data was sent
	return tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx) == nil
}
