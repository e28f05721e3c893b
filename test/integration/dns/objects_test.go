package dns_test

import (
	"fmt"
	"net/url"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/densityops/oooi/test/lab"
)

// domain is the base domain of the hosted clusters.
const domain = "lab.example.com"

// cluster is a hosted cluster with its Infra and the Service of its proxy.
type cluster struct {
	name  string
	net   string // first three octets of the VLAN's addresses
	proxy string // the proxy's address on the VLAN
	pod   string // the proxy's cluster IP
	apps  string // spec.appsIngress of the Infra
}

// The hosted clusters of most tests. The apps address of blue comes from a Service in a real hosted cluster,
// green's is static.
var (
	blue = cluster{
		name: "blue", net: "127.50.0", proxy: "127.50.0.3", pod: "127.96.1.50",
		apps: "{enabled: true, metallb: {ipAddressPoolRange: 192.0.2.0/24, loadBalancerClass: metallb.io/vlan}}",
	}
	green = cluster{
		name: "green", net: "127.60.0", proxy: "127.60.0.3", pod: "127.96.1.60",
		apps: "{enabled: true, source: Static, addresses: [198.51.100.100]}",
	}
)

// Apps addresses. They are not on the tests' VLANs, because load balancer addresses in loopback networks are
// rejected.
const (
	blueApps     = "192.0.2.200"
	blueAppsNext = "192.0.2.201"
	greenApps    = "198.51.100.100"
)

func (c cluster) site() lab.Site {
	return lab.Site{Name: c.name, BaseDomain: domain, VLAN: c.net, Network: c.name}
}

func (c cluster) yaml() string {
	site := c.site()
	return site.Namespaces() + site.HostedCluster().YAML() + c.infra() + lab.Service("clusters", c.name+"-proxy", 6443, "spec: {clusterIP: "+c.pod+"}") +
		lab.Route(site.ControlPlaneNamespace(), "ignition-server", c.routeHost(), "ignition-server-proxy")
}

// routeHost returns the host of a Route, outside of the cluster's own domain.
func (c cluster) routeHost() string { return "ignition-" + c.name + ".apps.management.example.com" }

func (c cluster) infra(changes ...string) string {
	components := fmt.Sprintf("spec: {infraComponents: {dhcp: null, dns: null, proxy: {serverIP: %s}}, appsIngress: %s}", c.proxy, c.apps)
	return c.site().Infra(append([]string{components}, changes...)...)
}

// addHostedCluster adds the hosted cluster of blue: an API server with the apps Service, and in the
// management cluster the Service and the kubeconfig with which coredns reads it.
func addHostedCluster(t *testing.T, cp *lab.ControlPlane) *lab.ControlPlane {
	t.Helper()
	guest := hosted.Get(t)
	guest.MustApply(t, lab.Namespaces("openshift-ingress"), lab.LoadBalancer("openshift-ingress", "blue-apps"),
		lab.Role("openshift-ingress", "reader", "reader", `{apiGroups: [""], resources: [services], resourceNames: [blue-apps], verbs: [get, list, watch]}`))
	lab.AssignAddresses(t, guest.Client(t), "openshift-ingress", "blue-apps", blueApps)
	server, err := url.Parse(guest.ServerURL())
	lab.Must(t, err)
	cp.Create(t, blue.site().Namespaces(), lab.Service("clusters-blue", "kube-apiserver", 6443, "spec: {clusterIP: "+hostedAddress+", ports: [{port: "+server.Port()+"}]}"),
		fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: blue-apps-reader, namespace: clusters}, stringData: {kubeconfig: %q}}", readerKubeconfig(t, guest)))
	return guest
}

// readerKubeconfig returns a kubeconfig that may only read the apps Service. As HyperShift writes it, it has
// the API server's public name, which does not resolve here.
func readerKubeconfig(t *testing.T, guest *lab.ControlPlane) string {
	t.Helper()
	path, err := guest.UserKubeconfig("reader")
	lab.Must(t, err)
	config, err := clientcmd.LoadFromFile(path)
	lab.Must(t, err)
	for _, c := range config.Clusters {
		c.Server = "https://api.blue." + domain + ":6443"
	}
	data, err := clientcmd.Write(*config)
	lab.Must(t, err)
	return string(data)
}
