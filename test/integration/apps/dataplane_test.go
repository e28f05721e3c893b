package apps_test

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// Addresses of clients and servers. The VLAN is 192.0.2.0/24.
const (
	vm        = "192.0.2.50"
	pod       = "198.18.0.9"
	dnsServer = "192.0.2.2"
	proxy     = "192.0.2.3"
	// serviceIP is the proxy's cluster IP, which pods connect to. No kube-proxy runs here, so Envoy
	// listens on it.
	serviceIP = "127.96.0.90"
)

// dataPlane is a tenant whose apps are served by CoreDNS, xdsd serve and Envoy. These run as a user that may
// not read the admin kubeconfig.
type dataPlane struct {
	*tenant.Tenant

	ca      *lab.CA
	coredns *lab.Daemon
	serve   *lab.Daemon
	envoy   *lab.Envoy
}

// readRoles returns the roles of CoreDNS or xdsd serve of a hosted cluster. They have the user's name.
func readRoles(namespace, cluster, user string) string {
	return lab.Role("", user, user,
		"{apiGroups: [hypershift.openshift.io, hostedcluster.densityops.com, route.openshift.io, discovery.k8s.io], "+
			"resources: [hostedclusters, infras, proxyservers, routes, endpointslices], verbs: [get, list, watch]}",
		`{apiGroups: [""], resources: [services], verbs: [get, list, watch]}`) +
		lab.Role(namespace, user, user, `{apiGroups: [""], resources: [secrets], resourceNames: [`+cluster+`-apps-reader], verbs: [get, list, watch]}`)
}

const corefile = `
.:53 {
    bind ` + dnsServer + `
    errors
    hcpviews {
        kubeconfig %[1]s
        infra %[2]s/demo
        hostedcluster %[2]s/demo
        snapshot %[3]s
    }
    hcpapps
    template IN ANY . {
        rcode NXDOMAIN
    }
}
`

// newDataPlane starts xdsd control, CoreDNS, xdsd serve and Envoy for a tenant whose MetalLB has a pool.
func newDataPlane(t *testing.T, pool string) *dataPlane {
	t.Helper()
	network.Need(t)
	d := &dataPlane{Tenant: tenants.NewTenantWithMetalLB(t, pool), ca: lab.NewCA(t)}
	d.Management.MustApply(t, readRoles(d.Namespace, "demo", "reader"), d.Site().ProxyServer("spec: {networkConfig: {serverIP: "+proxy+"}}"))
	d.Management.Create(t, lab.Service(d.Namespace, "demo-proxy", 443, "spec: {clusterIP: "+serviceIP+"}")) // the next test needs its cluster IP
	kubeconfig, err := d.Management.UserKubeconfig("reader")
	lab.Must(t, err)
	dir := lab.TempDir(t)
	text := fmt.Sprintf(corefile, kubeconfig, d.Namespace, filepath.Join(dir, "dns.json"))
	path := lab.WriteFile(t, text, dir, "Corefile")
	d.coredns = lab.NewDaemon(t, "coredns", func() *exec.Cmd { return exec.Command(network.Binary(t, "coredns"), "-conf", path) })
	xdsd, self := network.Binary(t, "xdsd"), d.Namespace+"/demo"
	socket := filepath.Join(dir, "xds.sock")
	d.serve = lab.NewDaemon(t, "xdsd serve", func() *exec.Cmd {
		return exec.Command(xdsd, "serve", "--kubeconfig", kubeconfig, "--proxy-server", self, "--infra", self, "--hosted-cluster", self,
			"--namespace", d.Namespace, "--socket", socket, "--bind", proxy+","+serviceIP, "--http", "127.0.9.1:9902", "--snapshot", filepath.Join(dir, "xds.json"))
	})
	tenants.NewReplica(t, d.Management, "control").Start(t)
	d.coredns.Start(t)
	d.serve.Start(t)
	d.envoy = lab.NewProxy(t, xdsd, "--proxy-server", self, "--node-id", "demo", "--metrics-address", "127.0.9.1", "--socket", socket, "--admin-socket", filepath.Join(dir, "admin.sock"))
	return d
}

// backend serves the apps at an address.
func (d *dataPlane) backend(address string) {
	d.Helper()
	// The first name identifies the backend.
	d.ca.TLSBackend(d.T, net.JoinHostPort(address, "443"), address, d.hostname("*"))
}
