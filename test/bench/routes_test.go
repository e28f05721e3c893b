package bench

import (
	"context"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/test/lab"
)

// One hosted cluster has all routes. Each route has a Route with a host, and a Service with one endpoint. The endpoints have
// different addresses, and the backend replies with the address of the connection.
const (
	routedCluster = "bench"
	routedDomain  = routedCluster + ".lab.example.com"
	routedIn      = namespace + "-" + routedCluster
	// perNetwork is the number of used addresses in each /24, and maxRoutes the number of routes with addresses.
	perNetwork, maxRoutes = 250, 100 * 250

	envoyAddress   = "198.18.0.3"
	haproxyAddress = "198.18.0.4"
	minimalAddress = "198.18.0.5"
	backendPort    = 9443
)

// kas is the endpoint of kube-apiserver, to which all names without a Route are routed.
var kas = netip.MustParseAddr("198.18.1.1")

// route is the number of a route, from 0.
type route int

func (r route) name() string { return fmt.Sprintf("r%05d", int(r)) }
func (r route) host() string { return r.name() + "-" + routedCluster + ".apps.mgmt.example.com" }

// endpoint returns the address of the Service's endpoint, before or after it has moved.
func (r route) endpoint(moved bool) netip.Addr {
	second := byte(18)
	if moved {
		second = 19
	}
	return netip.AddrFrom4([4]byte{198, second, byte(16 + int(r)/perNetwork), byte(1 + int(r)%perNetwork)})
}

// ofRoute is the endpoint of a proxy with all routes.
func ofRoute(r route) netip.Addr { return r.endpoint(false) }

// routedObjects returns the YAML of the namespaces, the hosted cluster, which publishes its services by Routes with their own
// hostnames, its Infra and its ProxyServer.
func routedObjects() string {
	hosted := lab.HostedCluster{
		Namespace: namespace, Name: routedCluster, BaseDomain: "lab.example.com", More: "  infraID: " + routedCluster + "-x7k2p",
		Publishing: map[string]string{
			"OAuthServer": lab.PublishedRoute("oauth." + routedDomain), "Konnectivity": lab.PublishedRoute("konnectivity." + routedDomain),
			"Ignition": lab.PublishedRoute("ignition." + routedDomain),
		},
	}
	return fmt.Sprintf(`
{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: %[2]s}}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %[3]s, namespace: %[1]s}
spec:
  hostedClusterRef: {name: %[3]s}
  networkConfig: {cidr: 198.18.0.0/24, gateway: 198.18.0.1, networkAttachmentDefinition: %[3]s}
  infraComponents: {proxy: {serverIP: %[4]s}}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: %[3]s, namespace: %[1]s}
spec: {infraRef: {name: %[3]s}, networkConfig: {serverIP: %[4]s}}
---
`, namespace, routedIn, routedCluster, envoyAddress) + hosted.YAML() + service("kube-apiserver", 6443, kas)
}

// service returns the YAML of a Service with one endpoint. The Service is headless, because allocating a cluster IP would take
// the API server the most time.
func service(name string, port int, at netip.Addr) string {
	return fmt.Sprintf(`
{"apiVersion":"v1","kind":"Service","metadata":{"name":%[1]q,"namespace":%[2]q},"spec":{"clusterIP":"None","ports":[{"port":%[3]d}]}}
---
{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%[1]q,"namespace":%[2]q,
"labels":{"kubernetes.io/service-name":%[1]q}},"addressType":"IPv4","ports":[{"name":"","port":%[4]d,"protocol":"TCP"}],%[5]s}
---
`, name, routedIn, port, backendPort, endpoints(at))
}

func endpoints(at netip.Addr) string {
	return fmt.Sprintf(`"endpoints":[{"addresses":[%q],"conditions":{"ready":true}}]`, at)
}

// routeTo returns the YAML of a Route with the host of one route and the Service of another.
func routeTo(host, to route) string {
	return fmt.Sprintf(`{"apiVersion":"route.openshift.io/v1","kind":"Route","metadata":{"name":%q,"namespace":%q},
"spec":{"host":%q,"to":{"kind":"Service","name":%q,"weight":100}}}`, host.name(), routedIn, host.host(), to.name())
}

var (
	endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	routeResource  = schema.GroupVersionResource{Group: "route.openshift.io", Version: "v1", Resource: "routes"}
)

// move changes the endpoint of a route's Service.
func (o objects) move(ctx context.Context, r route, moved bool) error {
	return o.patch(ctx, endpointSlices, routedIn, r.name(), "{"+endpoints(r.endpoint(moved))+"}")
}

// removeRoute deletes a Route.
func (o objects) removeRoute(ctx context.Context, r route) error {
	return o.client.Resource(routeResource).Namespace(routedIn).Delete(ctx, r.name(), metav1.DeleteOptions{})
}
