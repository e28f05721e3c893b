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

// One hosted cluster has all routes: each has a host, of a Route, and a Service with
// one endpoint. Each endpoint has an address of its own, at which the one backend says
// that address.
const (
	cluster   = "bench"
	namespace = "clusters-" + cluster
	domain    = cluster + ".lab.example.com"
	// perNetwork is how many addresses of a /24 are used.
	perNetwork = 250

	envoyAddress = "198.18.0.3"
	rivalAddress = "198.18.0.4"
	backendPort  = 9443
)

// MaxRoutes is how many there are addresses for.
const MaxRoutes = 100 * perNetwork

// kas is the API server's endpoint, to which every name leads that no Route has.
var kas = netip.MustParseAddr("198.18.1.1")

// route is the number of one.
type route int

func (r route) name() string { return fmt.Sprintf("r%05d", int(r)) }
func (r route) host() string { return r.name() + "-" + cluster + ".apps.mgmt.example.com" }

// endpoint is the address of the route's Service, and elsewhere one to which it may move.
func (r route) endpoint(elsewhere bool) netip.Addr {
	second := byte(18)
	if elsewhere {
		second = 19
	}
	return netip.AddrFrom4([4]byte{198, second, byte(16 + int(r)/perNetwork), byte(1 + int(r)%perNetwork)})
}

var (
	serviceResource = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	sliceResource   = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	routeResource   = schema.GroupVersionResource{Group: "route.openshift.io", Version: "v1", Resource: "routes"}
)

const fixed = `
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

// hostedCluster publishes all its services by names of its own.
var hostedCluster = lab.HostedCluster{
	Namespace: "clusters", Name: cluster, BaseDomain: "lab.example.com",
	Publishing: map[string]string{
		"OAuthServer": lab.PublishedRoute("oauth." + domain), "Konnectivity": lab.PublishedRoute("konnectivity." + domain),
		"Ignition": lab.PublishedRoute("ignition." + domain),
	},
	More: "  infraID: " + cluster + "-x7k2p",
}

// objects are what is in the API server.
type objects struct {
	client dynamic.Interface
	routes int
}

// newObjects makes the hosted cluster, without a Route.
func newObjects(ctx context.Context, management *lab.ControlPlane) (*objects, error) {
	if err := management.ApplyYAML(ctx, []byte(fixed+"---"+hostedCluster.YAML())); err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(management.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	o := &objects{client: client}
	if err := o.service(ctx, "kube-apiserver", 6443, kas); err != nil {
		return nil, err
	}
	return o, nil
}

// grow makes Routes, each with its Service, until there are n.
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

// service makes a Service, without an address of its own: that takes the API server longest.
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

// add leads the host of one route to the Service of another.
func (o *objects) add(ctx context.Context, host, service route) error {
	return o.create(ctx, routeResource, fmt.Sprintf(`{"apiVersion":"route.openshift.io/v1","kind":"Route","metadata":{"name":%q},
		"spec":{"host":%q,"to":{"kind":"Service","name":%q,"weight":100}}}`, host.name(), host.host(), service.name()))
}

// remove takes a Route away.
func (o *objects) remove(ctx context.Context, r route) error {
	err := o.client.Resource(routeResource).Namespace(namespace).Delete(ctx, r.name(), metav1.DeleteOptions{})
	if err != nil {
		return fmt.Errorf("deleting a Route: %w", err)
	}
	return nil
}

// move gives the Service of a route another endpoint.
func (o *objects) move(ctx context.Context, r route, elsewhere bool) error {
	patch := []byte("{" + endpoints(r.endpoint(elsewhere)) + "}")
	_, err := o.client.Resource(sliceResource).Namespace(namespace).Patch(ctx, r.name(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("changing an EndpointSlice: %w", err)
	}
	return nil
}

func (o *objects) create(ctx context.Context, resource schema.GroupVersionResource, text string) error {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		return fmt.Errorf("making an object of %s: %w", text, err)
	}
	_, err := o.client.Resource(resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating one of %s: %w", resource.Resource, err)
	}
	return nil
}
