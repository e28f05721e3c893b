package proxy_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// site is a hosted cluster with a VLAN, whose addresses are unique to the test, and its proxy: an xdsd and
// its Envoy.
type site struct {
	cp     *lab.ControlPlane
	ca     *lab.CA
	name   string
	domain string
	net    string // first three octets of the VLAN's addresses
	net6   string
	infra  struct {
		proxy string // further fields of infraComponents.proxy
		apps  string // spec.appsIngress
	}
	dir         string   // folder of the sockets; its name is the pod's
	flags       []string // of xdsd serve
	descriptors int      // limit of file descriptors; 0 for the limit of this process
	xdsd        *daemon
	envoy       *lab.Envoy
}

var sites atomic.Int32

func newSite(t *testing.T) *site {
	t.Helper()
	network.Need(t)
	n := sites.Add(1)
	s := &site{
		cp: management.Get(t), ca: lab.NewCA(t), dir: lab.TempDir(t),
		name: fmt.Sprintf("site%d", n), net: fmt.Sprintf("198.18.%d", n), net6: fmt.Sprintf("2001:db8:%x::", n),
	}
	s.domain = s.name + ".lab.example.com"
	s.infra.apps = s.static(s.ip(40), "")
	s.xdsd = &daemon{http: fmt.Sprintf("127.0.%d.1:9902", n)}
	s.xdsd.Daemon = lab.NewDaemon(t, "xdsd", func() *exec.Cmd { return s.command(t, s.flags...) })
	self := "clusters/" + s.name
	s.flags = []string{
		"serve", "--http", s.xdsd.http, "--kubeconfig", s.cp.Kubeconfig(), "--proxy-server", self, "--infra", self, "--hosted-cluster", self,
		"--namespace", "apps-" + s.name, "--socket", filepath.Join(s.dir, "xds.sock"), "--bind", s.ip(3) + "," + s.net6 + "3",
	}
	return s
}

// ip returns an address on the VLAN: host 1 is the gateway, 3 the proxy, backends start at 11 and apps at 40.
func (s *site) ip(host int) string { return fmt.Sprintf("%s.%d", s.net, host) }

// at returns an address and port on the VLAN.
func (s *site) at(host, port int) string { return fmt.Sprintf("%s.%d:%d", s.net, host, port) }

// at6 is at for IPv6.
func (s *site) at6(host, port int) string { return fmt.Sprintf("[%s%d]:%d", s.net6, host, port) }

// in returns a name of the hosted cluster.
func (s *site) in(label string) string { return label + "." + s.domain }

// namespace returns the namespace of the hosted control plane.
func (s *site) namespace() string { return "clusters-" + s.name }

// routeHost returns the host of a Route, outside of the cluster's own domain.
func (s *site) routeHost(route string) string { return route + "-" + s.name + ".apps.mgmt.example.com" }

// report enables the features of xdsd that need its own Envoy: the replica's status and the log level.
func (s *site) report() {
	s.flags = append(s.flags, "--pod", filepath.Base(s.dir), "--admin-socket", filepath.Join(s.dir, "admin.sock"))
}

// command returns a command of xdsd.
func (s *site) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(network.Binary(t, "xdsd"), args...)
	if s.descriptors > 0 {
		cmd = lab.WithDescriptors(s.descriptors, cmd)
	}
	return cmd
}

// start starts xdsd, and an Envoy with the bootstrap configuration that xdsd prints.
func (s *site) start(t *testing.T) {
	t.Helper()
	s.xdsd.Start(t)
	s.envoy = lab.NewEnvoy(t, s.bootstrap(t, strings.TrimSuffix(s.xdsd.http, ":9902")))
	s.xdsd.awaitCurrent(t)
}

// bootstrap returns the configuration of the site's Envoy.
func (s *site) bootstrap(t *testing.T, metrics string) lab.EnvoyConfig {
	t.Helper()
	run := func(more ...string) []byte {
		cmd := s.command(t, append([]string{
			"bootstrap", "--proxy-server", "clusters/" + s.name, "--node-id", filepath.Base(s.dir), "--metrics-address", metrics,
			"--socket", filepath.Join(s.dir, "xds.sock"), "--admin-socket", filepath.Join(s.dir, "admin.sock"),
		}, more...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		return out
	}
	return lab.EnvoyConfig{Bootstrap: run(), Args: strings.Fields(string(run("--args"))), Descriptors: s.descriptors, Logf: t.Logf}
}

// update applies objects.
func (s *site) update(t *testing.T, yaml ...string) {
	t.Helper()
	if err := s.cp.ApplyYAML(t.Context(), []byte(strings.Join(yaml, ""))); err != nil {
		t.Fatal(err)
	}
}

// remove deletes objects.
func (s *site) remove(t *testing.T, yaml string) {
	t.Helper()
	if err := s.cp.DeleteYAML(t.Context(), []byte(yaml)); err != nil {
		t.Fatal(err)
	}
}

// objects returns the hosted cluster with its Infra and its ProxyServer, without a control plane.
func (s *site) objects() string {
	var b strings.Builder
	for _, name := range []string{"clusters", s.namespace(), "apps-" + s.name} {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n", name)
	}
	cluster := lab.HostedCluster{
		Namespace: "clusters", Name: s.name, BaseDomain: "lab.example.com", API: s.in("api"),
		Publishing: map[string]string{
			"OAuthServer":  lab.PublishedRoute(s.in("oauth")),
			"Konnectivity": "{type: LoadBalancer, loadBalancer: {hostname: " + s.in("konnectivity") + "}}",
		},
		More: "  infraID: " + s.name + "-x7k2p",
	}
	return b.String() + cluster.YAML() + s.infraYAML() + s.proxyServer()
}

func (s *site) infraYAML() string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %[1]s, namespace: clusters}
spec:
  hostedClusterRef: {name: %[1]s}
  networkConfig: {cidr: %[2]s.0/24, additionalCIDRs: ["%[3]s/48"], gateway: %[2]s.1, networkAttachmentDefinition: %[1]s}
  infraComponents: {proxy: {serverIP: %[2]s.3, additionalServerIPs: ["%[3]s3"]%[4]s}}
  appsIngress: %[5]s
---
`, s.name, s.net, s.net6, s.infra.proxy, s.infra.apps)
}

// static returns a spec.appsIngress with an address. more are further fields.
func (s *site) static(address, more string) string {
	return fmt.Sprintf("{enabled: true, source: Static, addresses: [%q]%s}", address, more)
}

// proxyServer returns a ProxyServer with these backends in addition to the Infra's routes.
func (s *site) proxyServer(backends ...string) string {
	list := "[]"
	if len(backends) > 0 {
		list = "\n  - " + strings.Join(backends, "\n  - ")
	}
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: %s, namespace: clusters}
spec:
  infraRef: {name: %[1]s}
  networkConfig: {serverIP: %s}
  backends: %s
---
`, s.name, s.ip(3), list)
}

// backend returns an entry of spec.backends for TLS on port 443. more are further fields.
func (s *site) backend(name, host, service, more string) string {
	return s.backendOn(443, "TLS", name, host, service, 443, more)
}

// backendOn is backend for any port and protocol.
func (s *site) backendOn(port int, protocol, name, host, service string, targetPort int, more string) string {
	return fmt.Sprintf("{name: %s, hostname: %q, port: %d, targetService: %s, targetPort: %d, targetNamespace: apps-%s, protocol: %s%s}",
		name, host, port, service, targetPort, s.name, protocol, more)
}

// service returns a Service and its endpoints, which must have the same port.
func service(namespace, name string, port int, targets ...netip.AddrPort) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {ports: [{port: %d}]}\n---\n",
		name, namespace, port) + endpoints(namespace, name, targets...)
}

// endpoints returns the EndpointSlice of a Service.
func endpoints(namespace, name string, targets ...netip.AddrPort) string {
	family, port, list := "IPv4", 1, []string{}
	for _, target := range targets {
		if target.Addr().Is6() {
			family = "IPv6"
		}
		port = int(target.Port())
		list = append(list, fmt.Sprintf("{addresses: [%q], conditions: {ready: true}}", target.Addr()))
	}
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports: [{name: "", port: %[4]d, protocol: TCP}]
endpoints: [%[5]s]
---
`, name, namespace, family, port, strings.Join(list, ", "))
}

// route returns a Route of the hosted control plane.
func (s *site) route(name, service string) string {
	return fmt.Sprintf("apiVersion: route.openshift.io/v1\nkind: Route\nmetadata: {name: %s, namespace: %s}\nspec: {host: %s, to: {kind: Service, name: %s, weight: 100}}\n---\n",
		name, s.namespace(), s.routeHost(name), service)
}
