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
	dir   string // folder of the sockets
	xdsd  *daemon
	envoy *lab.Envoy
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
	s.infra.apps = fmt.Sprintf("{enabled: true, source: Static, addresses: [%s]}", s.ip(40))
	s.xdsd = newDaemon(t, fmt.Sprintf("127.0.%d.1:9902", n), s.serveFlags(filepath.Join(s.dir, "xds.sock"))...)
	return s
}

// ip returns an address on the VLAN: host 1 is the gateway, 3 the proxy, backends start at 11 and apps at 40.
func (s *site) ip(host int) string { return fmt.Sprintf("%s.%d", s.net, host) }

// at returns an address and port on the VLAN.
func (s *site) at(host, port int) string { return fmt.Sprintf("%s.%d:%d", s.net, host, port) }

// at6 is at for IPv6.
func (s *site) at6(host, port int) string { return fmt.Sprintf("[%s%d]:%d", s.net6, host, port) }

// namespace returns the namespace of the hosted control plane.
func (s *site) namespace() string { return "clusters-" + s.name }

// routeHost returns the host of a Route, outside of the cluster's own domain.
func (s *site) routeHost(route string) string { return route + "-" + s.name + ".apps.mgmt.example.com" }

func (s *site) serveFlags(socket string) []string {
	self := "clusters/" + s.name
	return []string{
		"--kubeconfig", s.cp.Kubeconfig(), "--proxy-server", self, "--infra", self, "--hosted-cluster", self,
		"--namespace", "apps-" + s.name, "--socket", socket, "--bind", s.ip(3) + "," + s.net6 + "3",
	}
}

// start starts xdsd, and an Envoy with the bootstrap configuration that xdsd prints.
func (s *site) start(t *testing.T) {
	t.Helper()
	s.startWith(t, 0)
}

// startWith is start with a limit of Envoy's file descriptors; 0 for the limit of this process.
func (s *site) startWith(t *testing.T, descriptors int) {
	t.Helper()
	s.xdsd.Start(t)
	s.envoy = lab.NewEnvoy(t, s.bootstrap(t, descriptors, s.dir, strings.TrimSuffix(s.xdsd.http, ":9902")))
	s.xdsd.awaitCurrent(t)
}

// bootstrap returns the configuration of the site's Envoy.
func (s *site) bootstrap(t *testing.T, descriptors int, dir, metrics string) lab.EnvoyConfig {
	t.Helper()
	return limitedBootstrap(t, descriptors, "--proxy-server", "clusters/"+s.name, "--node-id", filepath.Base(dir), "--metrics-address", metrics,
		"--socket", filepath.Join(dir, "xds.sock"), "--admin-socket", filepath.Join(dir, "admin.sock"))
}

// bootstrap returns the configuration that xdsd bootstrap prints with flags.
func bootstrap(t *testing.T, flags ...string) lab.EnvoyConfig {
	t.Helper()
	return limitedBootstrap(t, 0, flags...)
}

// limitedBootstrap is bootstrap with a limit of file descriptors; 0 for the limit of this process.
func limitedBootstrap(t *testing.T, descriptors int, flags ...string) lab.EnvoyConfig {
	t.Helper()
	args := append([]string{"bootstrap"}, flags...)
	run := func(args ...string) []byte {
		cmd := exec.Command(network.Binary(t, "xdsd"), args...)
		if descriptors > 0 {
			cmd = lab.WithDescriptors(descriptors, cmd)
		}
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		return out
	}
	return lab.EnvoyConfig{
		Bootstrap: run(args...), Args: strings.Fields(string(run(append(args, "--args")...))), Descriptors: descriptors, Logf: t.Logf,
	}
}

// objects returns the hosted cluster with its Infra and its ProxyServer, without a control plane.
func (s *site) objects() string {
	return namespaces("clusters", s.namespace(), "apps-"+s.name) + s.hostedCluster() + s.infraYAML() + s.proxyServer()
}

func namespaces(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n", name)
	}
	return b.String()
}

// hostedCluster returns a HostedCluster that the real CRD accepts.
func (s *site) hostedCluster() string {
	return lab.HostedCluster{
		Namespace: "clusters", Name: s.name, BaseDomain: "lab.example.com", API: "api." + s.domain,
		Publishing: map[string]string{
			"OAuthServer":  lab.PublishedRoute("oauth." + s.domain),
			"Konnectivity": "{type: LoadBalancer, loadBalancer: {hostname: konnectivity." + s.domain + "}}",
		},
		More: "  infraID: " + s.name + "-x7k2p",
	}.YAML()
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

// backend returns an entry of spec.backends. more are further fields.
func (s *site) backend(name, host, service, more string) string {
	return fmt.Sprintf("{name: %s, hostname: %q, port: 443, targetService: %s, targetPort: 443, targetNamespace: apps-%s, protocol: TLS%s}",
		name, host, service, s.name, more)
}

// service returns a Service and its endpoints, which must have the same port.
func service(namespace, name string, port int, targets ...netip.AddrPort) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {ports: [{port: %d}]}\n---\n",
		name, namespace, port) + endpoints(namespace, name, targets...)
}

// endpoints returns the EndpointSlice of a Service.
func endpoints(namespace, name string, targets ...netip.AddrPort) string {
	family, port, list := "IPv4", 1, ""
	for _, target := range targets {
		if target.Addr().Is6() {
			family = "IPv6"
		}
		port = int(target.Port())
		list += fmt.Sprintf("\n- {addresses: [%q], conditions: {ready: true}}", target.Addr())
	}
	if list == "" {
		list = " []"
	}
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports: [{name: "", port: %[4]d, protocol: TCP}]
endpoints:%[5]s
---
`, name, namespace, family, port, list)
}

// route returns a Route of the hosted control plane.
func (s *site) route(name, service string) string {
	return fmt.Sprintf("apiVersion: route.openshift.io/v1\nkind: Route\nmetadata: {name: %s, namespace: %s}\nspec: {host: %s, to: {kind: Service, name: %s, weight: 100}}\n---\n",
		name, s.namespace(), s.routeHost(name), service)
}

// update applies objects.
func (s *site) update(t *testing.T, yaml string) {
	t.Helper()
	if err := s.cp.ApplyYAML(t.Context(), []byte(yaml)); err != nil {
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

// named returns an EndpointSlice with a name for its port.
func named(slice, port string) string {
	return strings.Replace(slice, `name: ""`, fmt.Sprintf("name: %q", port), 1)
}
