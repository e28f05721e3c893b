package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/densityops/oooi/test/lab"
)

// Addresses of the clients, which select their views.
const (
	demoVM  = "127.50.0.10"
	otherVM = "127.60.0.10"
	podIP   = "127.0.0.1"
)

const (
	// hostedAddress is the address of the hosted cluster's API server: a cluster IP of the management cluster that is a loopback
	// address, so it needs no kube-proxy.
	hostedAddress = "127.96.0.77"
	// vlanIP is the proxy's VLAN address after all changes to the Infra.
	vlanIP = "127.50.0.4"
	// dhcpHTTP is the address of coredhcp's health, metrics and state endpoints.
	dhcpHTTP = "127.0.0.1:9903"

	metallb = "{addressPoolName: vlan50, ipAddressPoolRange: 192.168.50.200-192.168.50.207, loadBalancerClass: metallb.io/vlan}"
)

// A loopbackShow is the show with the daemons as processes.
type loopbackShow struct {
	*show

	management, hosted *lab.ControlPlane
	port               int  // of CoreDNS
	network            bool // there are a proxy and DHCP, which need a network namespace
	worker, unknown    *virtualMachine
}

// playOnLoopback runs the demo with the daemons as processes.
func playOnLoopback(s *show) {
	l := &loopbackShow{show: s, network: s.leftOut == nil}
	l.startClusters()
	if l.network {
		l.output("ip", "link", "add", bridge, "type", "bridge")
		for _, address := range []string{bridgeDNS, bridgeProxy, bridgeDHCP} {
			l.output("ip", "address", "add", address+"/24", "dev", bridge)
		}
		l.output("ip", "link", "set", bridge, "up")
		l.worker, l.unknown = l.newVM(bridge, workerMAC), l.newVM(bridge, unknownMAC)
	}
	l.startControl()
	l.startCoreDNS()
	l.showNames()
	l.showChanges()
	if l.network {
		l.startProxy()
		l.showProxy()
		l.showSwap()
		l.startDHCP()
		l.showDHCP()
	} else {
		l.printf(withoutNetwork, l.leftOut)
	}
	l.sum()
	if l.stay {
		l.keepRunning()
	}
}

// withoutNetwork is printed if proxy and DHCP are skipped, with the reason.
const withoutNetwork = `
# Proxy and DHCP are skipped: they need a network namespace, for addresses of pods, ports below 1024 and
# a bridge, and this user cannot create one: %v.
# Run the demo as root, or allow users to create network namespaces:
#   sysctl -w user.max_user_namespaces=10000
#   sysctl -w kernel.unprivileged_userns_clone=1                (if this setting exists)
#   sysctl -w kernel.apparmor_restrict_unprivileged_userns=0    (on Ubuntu)
`

// from returns a client with a source address, which selects its view.
func (l *loopbackShow) from(source string) client {
	return client{show: l.show, prompt: "$", source: source, server: []string{"@127.0.0.1", "-p", strconv.Itoa(l.port)}}
}

// startClusters starts a management cluster with the objects of two hosted clusters, and the API server and MetalLB of the first
// one.
func (l *loopbackShow) startClusters() {
	began := time.Now()
	hosted := lab.Config{Dir: filepath.Join(l.dir, "hosted"), Address: hostedAddress}
	crds := []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}
	if l.network {
		crds = append(crds, lab.KubeVirt) // for DHCP
		// The proxy connects to the pod of the API server, whose address cannot be a loopback address.
		hosted.APIServerFlags = []string{"--bind-address=0.0.0.0"}
	}
	group, ctx := errgroup.WithContext(l.ctx)
	group.Go(func() (err error) {
		l.management, err = lab.Start(ctx, lab.Config{
			Name: "management", Dir: filepath.Join(l.dir, "management"), ServiceCIDR: "127.96.0.0/16,fd00:96::/108", CRDs: crds,
		})
		return err
	})
	group.Go(func() (err error) {
		l.hosted, err = startHosted(ctx, hosted, hostedObjects("192.168.50.200-192.168.50.207"))
		return err
	})
	err := group.Wait()
	l.stopAtEnd(l.management, l.hosted)
	l.check(err)
	server, err := url.Parse(l.hosted.ServerURL())
	l.check(err)
	l.management.MustApply(l, lab.Namespaces("clusters", "clusters-demo", "clusters-other", "oooi-system"),
		clusterObjects("demo"), infraOf("127.50.0.3", ""), clusterObjects("other"),
		lab.Site{Name: "other", VLAN: "127.60.0", Network: "vlan60"}.Infra(
			"spec: {infraComponents: {dhcp: null, dns: {serverIP: 127.60.0.2}, proxy: {serverIP: 127.60.0.3}}}"),
		// Without kube-proxy, the first port must be the API server's own port, because DNS connects to it at the cluster IP. The proxy
		// uses port 6443, with the endpoints.
		lab.Service("clusters-demo", "kube-apiserver", 6443, fmt.Sprintf(
			"spec: {clusterIP: %s, ports: [{name: own, port: %s}, {name: client, port: 6443}]}", hostedAddress, server.Port())))
	l.check(site.HostedCluster().PublishKubeconfig(l.ctx, l.management, l.hosted))
	progress("started a management cluster with 2 hosted clusters, one of them with an API server and MetalLB, in %.1f s", time.Since(began).Seconds())
}

// clusterObjects returns a HostedCluster, the Route of its OAuth server and the Service of its proxy.
func clusterObjects(name string) string {
	of := lab.Site{Name: name, BaseDomain: "lab.example.com"}
	return of.HostedClusterWithHosts().YAML() +
		lab.Route("clusters-"+name, "oauth", "oauth."+of.Domain(), "oauth-openshift", "spec: {tls: {termination: passthrough}}") +
		lab.Service("clusters", name+"-proxy", 443, "spec: {ipFamilyPolicy: PreferDualStack, selector: {app.kubernetes.io/name: "+name+"-proxy}, "+
			"ports: [{name: https, port: 443}, {name: api, port: 6443}]}")
}

// infraOf returns the Infra of cluster demo with an address of the proxy. apps is appended to spec.appsIngress.
func infraOf(proxy, apps string) string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: clusters}
spec:
  hostedClusterRef: {name: demo}
  networkConfig: {cidr: 127.50.0.0/24, gateway: 127.50.0.1, networkAttachmentDefinition: vlan50}
  infraComponents:
    dns: {serverIP: 127.50.0.2}
    proxy: {serverIP: %s}
  appsIngress: {enabled: true, metallb: %s%s}
`, proxy, metallb, apps)
}

// startControl starts xdsd control, and waits until there is an apps address. The daemons are administrators here: what permissions
// they need is tested in test/integration/rights.
func (l *loopbackShow) startControl() {
	args := []string{"control", "--kubeconfig", l.management.Kubeconfig(), "--namespace", "oooi-system", "--http", "127.0.0.1:9904"}
	l.printf("\n# xdsd control creates the apps Service in the hosted cluster, and MetalLB assigns it an address.\n$ xdsd %s &\n", strings.Join(args, " "))
	l.daemon(l.xdsd, args...)
	l.showApps(l.management, `Ready ["192.168.50.20`)
}

// corefile is the Corefile of the demo. The last server block is the upstream resolver, to which CoreDNS forwards all other names.
const corefile = `.:%[1]d {
    bind 127.0.0.1
    errors
    hcpviews lab.example.com {
        kubeconfig %[3]s
    }
    hcpapps lab.example.com
    forward . 127.0.0.1:%[2]d
}
%[4]s
.:%[2]d {
    bind 127.0.0.1
    template IN ANY . {
        answer "{{ .Name }} 60 IN A ` + upstream + `"
    }
}
`

// appsPool expects the apps addresses that MetalLB assigns.
var appsPool = inNetwork("192.168.50.200/29")

// corefileVLAN is the server block for the VMs on the second VLAN.
const corefileVLAN = `
.:53 {
    bind ` + bridgeDNS + `
    errors
    hcpviews lab.example.com {
        kubeconfig %[2]s
        view vlan
    }
    hcpapps lab.example.com
    forward . 127.0.0.1:%[1]d
}
`

// startCoreDNS starts CoreDNS, which also listens on the second VLAN if there is one, and waits until it answers.
func (l *loopbackShow) startCoreDNS() {
	kubeconfig := l.management.Kubeconfig()
	ports, err := lab.ReservePorts(l.ctx, "127.0.0.1", 2)
	l.check(err)
	l.Cleanup(ports.Release)
	l.port = ports.Numbers[0]
	onVLAN := ""
	if l.network {
		onVLAN = fmt.Sprintf(corefileVLAN, ports.Numbers[1], kubeconfig)
	}
	text := fmt.Sprintf(corefile, l.port, ports.Numbers[1], kubeconfig, onVLAN)
	l.printf("$ cat Corefile\n%s\n$ coredns -conf Corefile\n", text)
	l.daemon(l.coredns, "-conf", l.write("Corefile", text))
	l.await("CoreDNS to answer", func() (bool, string) { // the apps address is the last, because it comes from the hosted cluster
		answer := l.answer(l.ctx, demoVM, "any.apps."+domain)
		return appsPool.data(answer), answer
	})
}

// answer returns CoreDNS' answer to a query for an address, from a source address, as lab.Resolve.
func (l *loopbackShow) answer(ctx context.Context, source, name string) string {
	return lab.Resolve(ctx, source, fmt.Sprintf("127.0.0.1:%d", l.port), name, dns.TypeA)
}

// showNames queries DNS from each view.
func (l *loopbackShow) showNames() {
	clusterIPv4, clusterIPv6 := inNetwork("127.96.0.0/16"), inNetwork("fd00:96::/108")
	proxy := only("127.50.0.3")
	names := []string{"api", "api-int", "oauth", "ignition", "konnectivity"}
	ask := func(source, name, qtype string, w want) { l.from(source).ask(name, qtype, w) }
	l.printf("\n# A VM of cluster demo on its VLAN: all names resolve to the proxy's VLAN address.\n")
	for _, name := range names {
		ask(demoVM, name+"."+domain, "A", proxy)
	}
	ask(demoVM, "api."+domain, "AAAA", noData)
	ask(demoVM, "api."+domain, "HTTPS", noData)
	ask(demoVM, "typo."+domain, "A", nxDomain)
	l.printf("\n# The same names from a pod: the proxy's Service, IPv4 and IPv6.\n")
	for _, name := range names {
		ask(podIP, name+"."+domain, "A", clusterIPv4)
		if name == "api" {
			ask(podIP, name+"."+domain, "AAAA", clusterIPv6)
		}
	}
	ask(podIP, "api."+domain, "HTTPS", noData)
	ask(podIP, "typo."+domain, "A", nxDomain)
	l.printf("\n# Names of another cluster: answered on its own VLAN, forwarded to the upstream resolver on any other.\n")
	ask(otherVM, "api.other.lab.example.com", "A", only("127.60.0.3"))
	ask(demoVM, "api.other.lab.example.com", "A", forwarded)
	ask(otherVM, "api."+domain, "A", forwarded)
	ask(demoVM, "www.example.com", "A", forwarded)
	l.printf("\n# Apps names on the VLAN: the address that MetalLB assigned to the apps Service in the hosted cluster.\n")
	ask(demoVM, "console-openshift-console.apps."+domain, "A", appsPool)
	ask(demoVM, "a.b.apps."+domain, "A", appsPool)
	ask(demoVM, oauthNames[1], "A", proxy)
	l.printf("\n# Apps names from a pod: the proxy's Service.\n")
	ask(podIP, "console-openshift-console.apps."+domain, "A", clusterIPv4)
	ask(podIP, "a.b.apps."+domain, "A", clusterIPv4)
	l.printf("\n# A pod resolves the names of all clusters.\n")
	ask(podIP, "api.other.lab.example.com", "A", clusterIPv4)
}

// showChanges changes objects, and prints how long it takes until DNS returns the new objects' addresses.
func (l *loopbackShow) showChanges() {
	for _, c := range []struct{ heading, name, change, want string }{
		{"The Infra gets another VLAN address for the proxy", "api." + domain, infraOf(vlanIP, ""), vlanIP},
		{
			"HyperShift creates a Route with a generated hostname", "ignition-clusters-demo.lab.example.com",
			ignitionRoute("ignition-clusters-demo.lab.example.com"), vlanIP,
		},
		{"The Route's hostname changes", "ignition-demo-4f2a.lab.example.com", ignitionRoute("ignition-demo-4f2a.lab.example.com"), vlanIP},
		{
			"The Infra requests another apps address from MetalLB", "console-openshift-console.apps." + domain,
			infraOf(vlanIP, ", service: {annotations: {metallb.io/loadBalancerIPs: "+appsIP+"}}"), appsIP,
		},
	} {
		l.printf("\n# %s.\n", c.heading)
		l.typeApply(c.change)
		took := l.applyAndWait(l.management, c.change, c.name+" becoming "+c.want, func(ctx context.Context) bool { return l.answer(ctx, demoVM, c.name) == c.want })
		l.printf("  correct answer %s after the API server accepted the change\n", took)
		l.from(demoVM).ask(c.name, "A", only(c.want))
	}
	l.from(demoVM).ask("ignition-clusters-demo.lab.example.com", "A", forwarded)
}

// keepRunning keeps everything running until ctx is done, or fails when a daemon exits.
func (l *loopbackShow) keepRunning() {
	enter := func(path string) string {
		command := "nsenter --net=" + path
		if os.Getenv(isolatedEnv) == createdByUser {
			command += fmt.Sprintf(" --target %d --user --preserve-credentials", os.Getpid())
		}
		return command
	}
	l.printf("\nEverything keeps running until Ctrl-C. ")
	if l.network {
		l.printf("To enter its network namespace from another terminal:\n\n  %s\n\n", enter(fmt.Sprintf("/proc/%d/ns/net", os.Getpid())))
		l.printf("To enter the network namespace of the VM on the second VLAN:\n\n  %s\n\n", enter(l.worker.Path()))
	}
	l.printf(`Try:

  dig @127.0.0.1 -p %[1]d -b 127.50.0.10 console-openshift-console.apps.%[3]s
  kubectl --kubeconfig %[2]s get hostedclusters,infras -A
  kubectl --kubeconfig %[2]s -n clusters edit infra demo
`, l.port, l.management.Kubeconfig(), domain)
	if l.network {
		l.printf("  curl --resolve %[1]s:443:%[2]s --cacert %[3]s/shop.crt https://%[1]s/\n  curl http://%[4]s/state\n", shopName, vlanIP, l.dir, dhcpHTTP)
	}
	for l.ctx.Err() == nil {
		l.checkDaemons("keeping everything running")
		time.Sleep(200 * time.Millisecond)
	}
	l.printf("\nended\n")
}
