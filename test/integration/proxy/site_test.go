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
	lab.Site

	cp    *lab.ControlPlane
	ca    *lab.CA
	name  string
	net6  string // the VLAN's addresses of IPv6, without the host
	infra struct {
		proxy string // additional fields of infraComponents.proxy
		apps  string // spec.appsIngress
	}
	dir         string   // directory of the sockets; its name is the pod's
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
	name := fmt.Sprintf("site%d", n)
	s := &site{
		Site: lab.Site{Name: name, BaseDomain: "lab.example.com", VLAN: fmt.Sprintf("198.18.%d", n)},
		cp:   management.Get(t), ca: lab.NewCA(t), dir: lab.TempDir(t), name: name, net6: fmt.Sprintf("2001:db8:%x::", n),
	}
	s.infra.apps = s.static(s.IP(40), "")
	s.xdsd = &daemon{Pages: lab.Pages(fmt.Sprintf("127.0.%d.1:9902", n))}
	s.xdsd.Daemon = lab.NewDaemon(t, "xdsd", func() *exec.Cmd { return s.command(t, s.flags...) })
	self := "clusters/" + s.name
	s.flags = []string{
		"serve", "--http", string(s.xdsd.Pages), "--kubeconfig", s.cp.Kubeconfig(), "--proxy-server", self, "--infra", self, "--hosted-cluster", self,
		"--namespace", "apps-" + s.name, "--socket", filepath.Join(s.dir, "xds.sock"), "--bind", s.IP(3) + "," + s.net6 + "3",
	}
	return s
}

// at returns an address and port on the VLAN: host 1 is the gateway, 3 the proxy, backends start at 11 and apps at 40.
func (s *site) at(host, port int) string { return fmt.Sprintf("%s:%d", s.IP(host), port) }

// at6 is at for IPv6.
func (s *site) at6(host, port int) string { return fmt.Sprintf("[%s%d]:%d", s.net6, host, port) }

// in returns a name of the hosted cluster.
func (s *site) in(label string) string { return label + "." + s.Domain() }

// routeHost returns the host of a Route, outside of the cluster's own domain.
func (s *site) routeHost(route string) string { return route + "-" + s.name + ".apps.mgmt.example.com" }

// report enables the features of xdsd that require a separate Envoy: the replica's status and the log level.
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
	s.envoy = lab.NewEnvoy(t, s.bootstrap(t, strings.TrimSuffix(string(s.xdsd.Pages), ":9902")))
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
	return lab.EnvoyConfig{Bootstrap: run(), Args: strings.Fields(string(run("--args"))), Descriptors: s.descriptors}
}

// update applies objects.
func (s *site) update(t *testing.T, yaml ...string) { t.Helper(); s.cp.MustApply(t, yaml...) }

// remove deletes objects.
func (s *site) remove(t *testing.T, yaml string) {
	t.Helper()
	lab.Must(t, s.cp.DeleteYAML(t.Context(), []byte(yaml)))
}

// objects returns the hosted cluster with its Infra and its ProxyServer, without a control plane.
func (s *site) objects() string {
	cluster := s.HostedCluster()
	cluster.Publishing = map[string]string{
		"OAuthServer":  lab.PublishedRoute(s.in("oauth")),
		"Konnectivity": "{type: LoadBalancer, loadBalancer: {hostname: " + s.in("konnectivity") + "}}",
	}
	return s.Namespaces() + lab.Namespaces("apps-"+s.name) + cluster.YAML() + s.infraYAML() + s.proxyServer()
}

func (s *site) infraYAML() string {
	return s.Infra(fmt.Sprintf(`spec: {networkConfig: {additionalCIDRs: ["%[1]s/48"]}, appsIngress: %[4]s,
  infraComponents: {dhcp: null, dns: null, proxy: {serverIP: %[2]s, additionalServerIPs: ["%[1]s3"]%[3]s}}}`, s.net6, s.IP(3), s.infra.proxy, s.infra.apps))
}

// static returns a spec.appsIngress with an address. more are additional fields.
func (s *site) static(address, more string) string {
	return fmt.Sprintf("{enabled: true, source: Static, addresses: [%q]%s}", address, more)
}

// proxyServer returns a ProxyServer with these backends in addition to the Infra's routes.
func (s *site) proxyServer(backends ...string) string {
	return s.ProxyServer(fmt.Sprintf("spec: {networkConfig: {serverIP: %s}, backends: [%s]}", s.IP(3), strings.Join(backends, ", ")))
}

// backend returns an entry of spec.backends for TLS on port 443. more are additional fields.
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
	return lab.Service(namespace, name, port) + lab.Endpoints(namespace, name, targets...)
}

// route returns a Route of the hosted control plane.
func (s *site) route(name, service string) string {
	return fmt.Sprintf("apiVersion: route.openshift.io/v1\nkind: Route\nmetadata: {name: %s, namespace: %s}\nspec: {host: %s, to: {kind: Service, name: %s, weight: 100}}\n---\n",
		name, s.ControlPlaneNamespace(), s.routeHost(name), service)
}
