//go:build vm

package vm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// Addresses on the VLAN. The ignition server is a backend of the proxy.
const (
	vlan            = "vlan50"
	otherHostBridge = "vlan50-b" // the VLAN's bridge on another host of VMs
	router          = "192.0.2.1"
	dhcpServer      = "192.0.2.2"
	dnsServer       = "192.0.2.3"
	proxyServer     = "192.0.2.4"
	ntpServer       = "192.0.2.7"
	ignitionIP      = "198.18.0.12"
	ignitionName    = "ignition.demo.lab.example.com"
	workerName      = "demo-worker-6k8d2"
	workerMAC       = "02:00:c0:00:02:64"
)

// ignition is the configuration that the worker boots with.
const ignition = `{"ignition": {"version": "3.4.0"}}`

// demo names the objects of the VLAN.
var (
	demo          = lab.Site{BaseDomain: "lab.example.com", Network: "clusters-demo/vlan50"}
	hostedCluster = demo.HostedClusterWithHosts()
)

// site is a VLAN with its services.
type site struct {
	ca       *lab.CA
	dir      string
	coredhcp *lab.Daemon
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{ca: lab.NewCA(t), dir: lab.TempDir(t)}
	services := lab.End{Device: "services"}
	for _, address := range []string{router, dhcpServer, dnsServer, proxyServer, ntpServer} {
		services.Addresses = append(services.Addresses, address+"/24")
	}
	lab.Must(t, errors.Join(lab.Cable(lab.End{Bridge: vlan}, services), lab.Cable(lab.End{Bridge: vlan}, lab.End{Bridge: otherHostBridge})))
	cp := management.Get(t)
	serveIgnition(t, s.ca, ignitionIP+":443")
	cp.MustApply(t, demo.Namespaces(), hostedCluster.YAML(), hostedCluster.Backend("ignition-server-proxy", 443, netip.MustParseAddrPort(ignitionIP+":443"), ""),
		demo.Infra("spec: {infraComponents: {dhcp: null}, appsIngress: {enabled: false}}"), demo.ProxyServer("spec: {backends: []}"),
		demo.VirtualMachine(workerName), demo.VirtualMachineInstance(workerName, workerMAC, lab.OwnedByVM(workerName, "")))
	s.startDHCP(t, cp)
	s.startDNS(t, cp)
	s.startProxy(t, cp)
	return s
}

// serveIgnition starts a stand-in for HyperShift's ignition server.
func serveIgnition(t *testing.T, ca *lab.CA, address string) {
	t.Helper()
	lab.ServeHTTP(t, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ignition" || r.Host != ignitionName {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, ignition)
	}), ca.Certificate(t, ignitionName))
}

func (s *site) startDHCP(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	config := s.write(t, "dhcp.yml", fmt.Sprintf(`
server4:
  listen: ["%%services"]
  plugins:
  - kubevirt: network=clusters-demo/vlan50 namespace=clusters-demo kubeconfig=%[1]s
  - leasedb: store=bolt file=%[2]s/leases.db cidr=192.0.2.0/24 range=192.0.2.100-192.0.2.199 lease=1h server=%[3]s
  - netmask: 255.255.255.0
  - router: %[4]s
  - dns: %[5]s
  - options: mtu=1400 domain=demo.lab.example.com routes=10.0.0.0/8>192.0.2.9 ntp=%[6]s
`, cp.Kubeconfig(), s.dir, dhcpServer, router, dnsServer, ntpServer))
	s.coredhcp = s.start(t, "coredhcp", "--config", config, "--http", "127.0.0.1:9903", "--log-level", "debug")
	lab.Poll(t, "coredhcp to know the VM", func() bool {
		status, state := lab.Get(t, "http://127.0.0.1:9903/state")
		return status == http.StatusOK && json.Valid(state) && strings.Contains(string(state), workerMAC)
	})
}

func (s *site) startDNS(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	corefile := s.write(t, "Corefile", fmt.Sprintf(".:53 {\n  bind %s\n  errors\n  ready 127.0.0.1:8181\n  hcpviews lab.example.com {\n    kubeconfig %s\n  }\n}\n", dnsServer, cp.Kubeconfig()))
	s.start(t, "coredns", "-conf", corefile)
	lab.Poll(t, "CoreDNS to be ready", func() bool {
		status, _ := lab.Get(t, "http://127.0.0.1:8181/ready")
		return status == http.StatusOK
	})
}

// startProxy starts xdsd, and an Envoy with the bootstrap configuration that xdsd prints.
func (s *site) startProxy(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	socket := filepath.Join(s.dir, "xdsd.sock")
	s.start(t, "xdsd", "serve", "--kubeconfig", cp.Kubeconfig(), "--proxy-server", "clusters/demo", "--infra", "clusters/demo",
		"--hosted-cluster", "clusters/demo", "--socket", socket, "--bind", proxyServer, "--http", "127.0.0.1:9902")
	lab.NewProxy(t, network.Binary(t, "xdsd"), "--proxy-server", "clusters/demo", "--node-id", "demo-proxy-0", "--socket", socket, "--admin-socket", filepath.Join(s.dir, "admin.sock"))
}

// start starts one of the project's daemons, which is killed when the test ends.
func (s *site) start(t *testing.T, name string, args ...string) *lab.Daemon {
	t.Helper()
	d := lab.NewDaemon(t, name, func() *exec.Cmd { return exec.Command(network.Binary(t, name), args...) })
	d.Start(t)
	return d
}

func (s *site) write(t *testing.T, name, text string) string {
	t.Helper()
	path := lab.WriteFile(t, text, s.dir, name)
	return path
}
