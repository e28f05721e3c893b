package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// One hosted cluster has all routes. Each route has a Route with a host, and a Service with one endpoint. The endpoints
// have different addresses, and the backend replies with the address of the connection.
const (
	cluster   = "bench"
	pod       = cluster // name of the proxy's pod
	namespace = "clusters-" + cluster
	domain    = cluster + ".lab.example.com"
	// perNetwork is the number of addresses that are used of each /24.
	perNetwork = 250

	envoyAddress   = "198.18.0.3"
	haproxyAddress = "198.18.0.4"
	minimalAddress = "198.18.0.5"
	backendPort    = 9443
)

// MaxRoutes is the number of routes for which there are addresses.
const MaxRoutes = 100 * perNetwork

// kas is the endpoint of kube-apiserver, to which all names without a Route are routed.
var kas = netip.MustParseAddr("198.18.1.1")

// route is the number of a route, from 0.
type route int

func (r route) name() string { return fmt.Sprintf("r%05d", int(r)) }
func (r route) host() string { return r.name() + "-" + cluster + ".apps.mgmt.example.com" }

// endpoint returns the address of the Service's endpoint, before or after it has moved.
func (r route) endpoint(moved bool) netip.Addr {
	second := byte(18)
	if moved {
		second = 19
	}
	return netip.AddrFrom4([4]byte{198, second, byte(16 + int(r)/perNetwork), byte(1 + int(r)%perNetwork)})
}

var (
	serviceResource = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	sliceResource   = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	routeResource   = schema.GroupVersionResource{Group: "route.openshift.io", Version: "v1", Resource: "routes"}
)

// baseObjects are the namespaces, the Infra and the ProxyServer.
const baseObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: clusters}
---
apiVersion: v1
kind: Namespace
metadata: {name: ` + namespace + `}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: ` + cluster + `, namespace: clusters}
spec:
  hostedClusterRef: {name: ` + cluster + `}
  networkConfig: {cidr: 198.18.0.0/24, gateway: 198.18.0.1, networkAttachmentDefinition: ` + cluster + `}
  infraComponents: {proxy: {serverIP: ` + envoyAddress + `}}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: ` + cluster + `, namespace: clusters}
spec:
  infraRef: {name: ` + cluster + `}
  networkConfig: {serverIP: ` + envoyAddress + `}
`

// hostedCluster publishes all services except the API server by Routes with their own hostnames.
var hostedCluster = lab.HostedCluster{
	Namespace: "clusters", Name: cluster, BaseDomain: "lab.example.com",
	Publishing: map[string]string{
		"OAuthServer": lab.PublishedRoute("oauth." + domain), "Konnectivity": lab.PublishedRoute("konnectivity." + domain),
		"Ignition": lab.PublishedRoute("ignition." + domain),
	},
	More: "  infraID: " + cluster + "-x7k2p",
}

// objects creates and changes the objects in the API server.
type objects struct {
	client dynamic.Interface
	routes int
}

// newObjects creates the hosted cluster, without Routes.
func newObjects(ctx context.Context, management *lab.ControlPlane) (*objects, error) {
	if err := management.ApplyYAML(ctx, []byte(baseObjects+"---"+hostedCluster.YAML())); err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(management.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	o := &objects{client: client}
	if err := o.service(ctx, "kube-apiserver", 6443, kas); err != nil {
		return nil, err
	}
	return o, nil
}

// grow creates Routes, each with its Service, until there are n.
func (o *objects) grow(ctx context.Context, n int) error {
	err := measure.Fill(ctx, o.routes, n, func(ctx context.Context, number int) error {
		r := route(number)
		if err := o.service(ctx, r.name(), 443, r.endpoint(false)); err != nil {
			return err
		}
		return o.add(ctx, r, r)
	})
	o.routes = n
	return err
}

// service creates a Service with one endpoint. The Service is headless, because allocating a cluster IP would take the
// API server the most time.
func (o *objects) service(ctx context.Context, name string, port int, at netip.Addr) error {
	err := o.create(ctx, serviceResource, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"clusterIP":"None","ports":[{"port":%d}]}}`, name, port))
	if err != nil {
		return err
	}
	return o.create(ctx, sliceResource, fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice",
		"metadata":{"name":%[1]q,"labels":{"kubernetes.io/service-name":%[1]q}},"addressType":"IPv4",
		"ports":[{"name":"","port":%d,"protocol":"TCP"}],%s}`, name, backendPort, endpoints(at)))
}

func endpoints(at netip.Addr) string {
	return fmt.Sprintf(`"endpoints":[{"addresses":[%q],"conditions":{"ready":true}}]`, at)
}

// add creates a Route with the host of one route and the Service of another.
func (o *objects) add(ctx context.Context, host, service route) error {
	return o.create(ctx, routeResource, fmt.Sprintf(`{"apiVersion":"route.openshift.io/v1","kind":"Route","metadata":{"name":%q},
		"spec":{"host":%q,"to":{"kind":"Service","name":%q,"weight":100}}}`, host.name(), host.host(), service.name()))
}

// remove deletes a Route.
func (o *objects) remove(ctx context.Context, r route) error {
	err := o.client.Resource(routeResource).Namespace(namespace).Delete(ctx, r.name(), metav1.DeleteOptions{})
	if err != nil {
		return fmt.Errorf("deleting a Route: %w", err)
	}
	return nil
}

// move changes the endpoint of a route's Service.
func (o *objects) move(ctx context.Context, r route, moved bool) error {
	patch := []byte("{" + endpoints(r.endpoint(moved)) + "}")
	_, err := o.client.Resource(sliceResource).Namespace(namespace).Patch(ctx, r.name(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("changing an EndpointSlice: %w", err)
	}
	return nil
}

// create creates an object, and ignores that it exists.
func (o *objects) create(ctx context.Context, resource schema.GroupVersionResource, text string) error {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		return fmt.Errorf("decoding %s: %w", text, err)
	}
	_, err := o.client.Resource(resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating an object of %s: %w", resource.Resource, err)
	}
	return nil
}
