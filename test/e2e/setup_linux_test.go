//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// The hosted cluster of the tests. Its control plane consists of test servers with the Service names of
// HyperShift.
const (
	domain  = "demo.lab.example.com"
	apiHost = "api." + domain

	dhcpAddress = "198.18.50.5"
)

// demo names the hosted cluster's objects, and inVMs its VMs' objects. Multus isolates namespaces, so the network has a
// NetworkAttachmentDefinition in each.
var (
	demo          = lab.Site{BaseDomain: "lab.example.com", VLAN: "198.18.50", Network: vlan}
	inVMs         = lab.Site{BaseDomain: "lab.example.com", VLAN: "198.18.50", Network: "clusters-demo/" + vlan}
	hostedCluster = demo.HostedClusterWithHosts()
)

// networks returns the network of a VLAN in both namespaces.
func networks(bridge string) string {
	return lab.BridgeNetwork("clusters", bridge, bridge) + lab.BridgeNetwork("clusters-demo", bridge, bridge)
}

// infra is the Infra that the tests set up.
var infra = infraOn(demo, "spec: {appsIngress: {enabled: true, source: Static, addresses: [198.18.50.200]}}")

// infraOn returns the Infra of a VLAN, on which DHCP, DNS and the proxy have the addresses 5, 6 and 7, with changes as for lab.Site.
func infraOn(s lab.Site, changes ...string) string {
	return s.Infra(append([]string{fmt.Sprintf(`spec:
  networkConfig: {dnsServers: [192.0.2.99]}
  infraComponents:
    dhcp: {serverIP: %s, rangeStart: %s, rangeEnd: %s}
    dns: {serverIP: %s}
    proxy: {serverIP: %s}`, s.IP(5), s.IP(150), s.IP(159), s.IP(6), s.IP(7))}, changes...)...)
}

// editedInfra returns the Infra with changes to its components as for lab.Site.
func editedInfra(components string) string {
	return lab.Merge(infra, "spec: {infraComponents: {"+components+"}}")
}

// site is a hosted cluster with the files and commands of its operator.
type site struct {
	cp      *lab.ControlPlane
	ca      *lab.CA                 // CA of every server behind the proxy
	servers map[string]*lab.Backend // by the name of their Service
	roots   string                  // path of the CA's certificate
	dir     string
	binary  string // kubectl-oooi
	down    bool   // teardown has run
}

// newSite creates the objects that exist before setup runs. The end of the test runs teardown.
func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOn(t, cluster(t))
}

// newSiteOn is newSite on another management cluster.
func newSiteOn(t *testing.T, cp *lab.ControlPlane) *site {
	t.Helper()
	s := &site{cp: cp, ca: lab.NewCA(t), dir: t.TempDir()}
	lab.Must(t, s.cp.InstallCRDs(t.Context(), lab.HyperShift, lab.OpenShiftRoute, lab.KubeVirt, lab.KubeVirtMachines))
	api := s.ca.TLSBackend(t, "192.0.2.81:6443", apiHost, "kubernetes")
	oauth := s.ca.TLSBackend(t, "192.0.2.82:6443", "oauth."+domain)
	ignition := s.ca.TLSBackend(t, "192.0.2.83:8443", "ignition."+domain)
	konnectivity := s.ca.TLSBackend(t, "192.0.2.84:8091", "konnectivity."+domain)
	s.cp.MustApply(t, lab.Merge("{apiVersion: v1, kind: Namespace, metadata: {name: clusters, labels: {pod-security.kubernetes.io/enforce: restricted}}}"),
		lab.Namespaces("clusters-demo"), networks(vlan), hostedCluster.YAML(), hostedCluster.NetworkPolicies(),
		hostedCluster.Backend("kube-apiserver", 6443, api.Addr(), "")+hostedCluster.Backend("oauth-openshift", 6443, oauth.Addr(), "")+
			hostedCluster.Backend("ignition-server-proxy", 443, ignition.Addr(), "")+hostedCluster.Backend("konnectivity-server", 8091, konnectivity.Addr(), ""))
	s.servers = map[string]*lab.Backend{"kube-apiserver": api, "oauth-openshift": oauth, "ignition-server-proxy": ignition, "konnectivity-server": konnectivity}
	lab.Must(t, s.cp.Apply(t.Context(), hostedCluster.RootCA(s.ca.PEM()), hostedCluster.KonnectivityCA(s.ca.PEM())))
	serveUpstream(t)
	s.roots = lab.WriteFile(t, string(s.ca.PEM()), s.dir, "ca.crt")
	s.binary = lab.Binary(t, "kubectl-oooi")
	t.Cleanup(func() { s.teardown(t) })
	return s
}

// upstreamResolver is the upstream resolver of infra.
const upstreamResolver = "192.0.2.99"

// upstreamAddresses are the addresses of names, with a final dot, that the upstream resolver knows.
var upstreamAddresses sync.Map

// serveUpstream runs an upstream resolver that knows no name but the root and upstreamAddresses, until the end of the test.
func serveUpstream(t *testing.T) {
	t.Helper()
	lab.ServeDNS(t, upstreamResolver+":53", func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetRcode(q, dns.RcodeNameError)
		if q.Question[0].Name == "." {
			reply.Rcode = dns.RcodeSuccess
		}
		if address, known := upstreamAddresses.Load(q.Question[0].Name); known {
			ip, _ := address.(string)
			reply = lab.DNSReply(q, ip)
			reply.Answer[0].Header().Ttl = 1 // the address may change
		}
		_ = w.WriteMsg(reply) // the client may have closed its socket
	})
}

// teardown runs teardown once.
func (s *site) teardown(t *testing.T) {
	t.Helper()
	if !s.down {
		s.oooi(t, "-n", "clusters", "teardown", "demo", "--yes", "--leases", "--crds")
	}
	s.down = true
}

// execute runs kubectl-oooi, and logs its output.
func (s *site) execute(t *testing.T, limit time.Duration, args ...string) lab.Result {
	t.Helper()
	r := lab.Execute(t, limit, append([]string{s.binary, "--kubeconfig", s.cp.Kubeconfig()}, args...)...)
	t.Logf("%s: exit code %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	return r
}

// oooi runs kubectl-oooi, which must succeed, and returns its standard output.
func (s *site) oooi(t *testing.T, args ...string) string {
	t.Helper()
	r := s.execute(t, 12*time.Minute, args...)
	if r.Code != 0 {
		t.Fatalf("kubectl oooi %s: exit code %d", strings.Join(args, " "), r.Code)
	}
	return r.Stdout
}

// setup runs setup for an Infra. flags override the default flags. Only on a loaded machine does it take minutes.
func (s *site) setup(t *testing.T, infra string, flags ...string) string {
	t.Helper()
	return s.oooi(t, append(s.setupArgs(t, infra), append([]string{"--image", oooiImage, "--envoy-image", envoyImage, "--timeout", "10m"}, flags...)...)...)
}

// setupArgs returns the arguments that run setup for an Infra without other flags than a timeout.
func (s *site) setupArgs(t *testing.T, infra string) []string {
	t.Helper()
	return []string{"setup", "-f", lab.WriteFile(t, infra, s.dir, "infra.yaml"), "--timeout", "3m"}
}

// vm is a simulated VM that has booted.
type vm struct {
	*lab.Machine

	mac           net.HardwareAddr
	address       string
	hostname, dns string // from its lease
}

// boot boots a VM of the hosted cluster, and returns when it has a lease.
func (s *site) boot(t *testing.T, name, mac string) *vm {
	t.Helper()
	return s.bootOn(t, vlan, name, mac)
}

// bootOn is boot on the VLAN of a bridge, whose network has the same name.
func (s *site) bootOn(t *testing.T, bridge, name, mac string) *vm {
	t.Helper()
	s.cp.Create(t, lab.Site{Network: "clusters-demo/" + bridge}.VirtualMachineInstance(name, mac)) // the next test may use the same MAC address
	v := &vm{Machine: lab.NewMachine(t, bridge, mac)}
	var err error
	if v.mac, err = net.ParseMAC(mac); err != nil {
		t.Fatal(err)
	}
	lease := v.UDHCPC(t)
	v.address, v.hostname, v.dns = lease["ip_address"], lease["host_name"], lease["domain_name_servers"]
	return v
}

// TestSetup sets up a VLAN on the node, boots VMs, and tears everything down.
func TestSetup(t *testing.T) {
	s := newSite(t)
	s.serveClusterDNS(t, node.Node)
	before := s.corefile(t)
	existing := listObjects(t, s.cp)
	s.setup(t, infra, "--cluster-dns", "patch")
	s.syncClusterDNS(t)

	vm := s.boot(t, "worker-1", "02:00:00:00:50:71")
	if !strings.HasPrefix(vm.address, "198.18.50.15") || vm.hostname != "worker-1" || vm.dns != "198.18.50.6" {
		t.Errorf("lease has address %s, hostname %s and DNS server %s", vm.address, vm.hostname, vm.dns)
	}

	// A VM with a reserved address and another DHCP client.
	const reserved = "198.18.50.40"
	s.cp.MustApply(t, inVMs.VirtualMachineInstance("worker-2", "02:00:00:00:50:72", "metadata: {annotations: {hostedcluster.densityops.com/dhcp-addresses: "+reserved+"}}"))
	lease := lab.NewMachine(t, vlan, "02:00:00:00:50:72").DHCP(t)
	for option, want := range map[string]string{"ip_address": reserved, "host_name": "worker-2", "domain_name_servers": "198.18.50.6", "routers": "198.18.50.1"} {
		if lease[option] != want {
			t.Errorf("lease of dhclient has %s %q, want %q", option, lease[option], want)
		}
	}

	// Names resolve on the VLAN, and each leads to its server.
	vlanServer(t, s.ca, shop)
	var script, want strings.Builder
	for _, c := range append(controlPlane, apps) {
		fmt.Fprintln(&script, greet(c.name, c.port))
		fmt.Fprintln(&want, c.name)
		s.connects(t, vm, c)
	}

	// Pods resolve the names to the proxy's Service.
	proxyIP := clusterIP(t, s.cp, "clusters", "demo-proxy")
	for i, name := range []string{apiHost, shop} {
		got := runPod(t, s.cp, "clusters", fmt.Sprintf("client-%d", i), "dig", "@"+clusterIP(t, s.cp, "clusters", "demo-dns"), "+short", "+time=5", name)
		if strings.TrimSpace(got) != proxyIP {
			t.Errorf("%s resolves to %s in a Pod, want %s", name, got, proxyIP)
		}
	}

	// A Pod connects to every name through the cluster's DNS.
	if got := s.runClientPod(t, apiHost, script.String()); got != want.String() {
		t.Errorf("backends that a Pod reaches by name\n%swant\n%s", got, &want)
	}

	// Doctor runs all checks and finds nothing.
	s.oooi(t, "-n", "clusters", "doctor", "demo", "-o", "wide", "--fail-on", "warn", "--strict", "--wait", "2m")

	// Another setup changes nothing.
	patched := s.corefile(t)
	versions := resourceVersions(t, s.cp)
	s.setup(t, infra, "--wait=false", "--cluster-dns", "patch")
	if changed := cmp.Diff(versions, resourceVersions(t, s.cp)); changed != "" {
		t.Errorf("the second setup changes\n%s", changed)
	}
	if current := s.corefile(t); current != patched || patched == before {
		t.Errorf("the Corefile of the cluster's DNS was\n%s\nafter setup\n%s\nafter the second setup\n%s", before, patched, current)
	}
	s.teardown(t)
	if after := s.corefile(t); strings.TrimSpace(after) != strings.TrimSpace(before) {
		t.Errorf("teardown leaves the Corefile of the cluster's DNS as\n%s", after)
	}
	s.checkNothingLeft(t, s.cp, existing)
}

// A server has a name, and the address to which the name resolves on the VLAN.
type server struct {
	name    string
	port    int
	address string
}

// controlPlane has the servers of the hosted control plane, which the proxy serves.
var controlPlane = []server{
	{apiHost, 6443, "198.18.50.7"}, {"oauth." + domain, 443, "198.18.50.7"},
	{"ignition." + domain, 443, "198.18.50.7"}, {"konnectivity." + domain, 443, "198.18.50.7"},
}

// apps is the server of the apps, on the VLAN.
var apps = server{shop, 443, "198.18.50.200"}

// connects checks that a VM resolves the name of a server, and that the address leads to it.
func (s *site) connects(t *testing.T, vm *vm, to server) {
	t.Helper()
	if got := strings.TrimSpace(vm.Run(t, "dig", "@198.18.50.6", "+short", "+time=5", to.name)); got != to.address {
		t.Errorf("%s resolves to %s on the VLAN, want %s", to.name, got, to.address)
		return
	}
	if got := greeting(t, vm, s.roots, to.name, to.port, to.address); got != to.name {
		t.Errorf("%s:%d leads to %q", to.name, to.port, got)
	}
}

// vlanServer starts the load balancer of the apps at its VLAN address, on both ports.
func vlanServer(t *testing.T, ca *lab.CA, name string) (overTLS, plain *lab.Backend) {
	t.Helper()
	hostOnVLAN(t, "198.18.50.200/24")
	return ca.TLSBackend(t, "198.18.50.200:443", name), lab.HTTPBackend(t, "198.18.50.200:80", name)
}

// hostOnVLAN gives the VLAN's bridge an address until the end of the test.
func hostOnVLAN(t *testing.T, address string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ip", "address", "replace", address, "dev", vlan).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "address", "del", address, "dev", vlan).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// greeting returns what a server sends first to a VM that verifies its certificate for name.
func greeting(t *testing.T, vm *vm, roots, name string, port int, address string) string {
	t.Helper()
	out := vm.Run(t, "sh", "-c", "sleep 1 | "+clientOf(roots, name, address, port))
	first, _, _ := strings.Cut(out, "\n")
	return first
}

// clientOf returns the command of a TLS client that verifies the certificate for name, and prints what the server sends.
func clientOf(roots, name, address string, port int) string {
	return fmt.Sprintf("timeout 20 openssl s_client -quiet -no_ign_eof -verify_return_error -CAfile %s -servername %s -verify_hostname %s -connect %s:%d 2>/dev/null", roots, name, name, address, port)
}
