//go:build e2e

package e2eingress_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// site is a namespace with a VirtualIngress called web and its objects.
type site struct {
	t         *testing.T
	cp        *lab.ControlPlane
	client    client.Client
	namespace string
}

func newSite(t *testing.T, cp *lab.ControlPlane) *site {
	t.Helper()
	return &site{t, cp, cp.Client(t), cp.Namespace(t)}
}

// apply applies YAML in the namespace.
func (s *site) apply(format string, args ...any) {
	s.t.Helper()
	objects, err := lab.ParseYAML(fmt.Appendf(nil, format, args...))
	lab.Must(s.t, err)
	for _, o := range objects {
		o.SetNamespace(s.namespace)
		lab.Must(s.t, s.cp.Apply(s.t.Context(), o))
	}
}

// get reads an object of the namespace.
func (s *site) get(name string, into client.Object) error {
	return s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, into)
}

// virtualIngress creates the VirtualIngress for a host, with annotations of cert-manager and Contour.
func (s *site) virtualIngress(host, mode string) {
	s.t.Helper()
	const service = `{service: {matchLabels: {` + tenantLabels + `}, port: {number: 80}}}`
	s.apply(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: VirtualIngress
metadata:
  name: web
  annotations:
    cert-manager.io/cluster-issuer: lab
    ingress.kubernetes.io/force-ssl-redirect: "true"
    projectcontour.io/websocket-routes: /echo
spec:
  backendMode: %[2]s
  ingressClassName: contour
  tls: [{hosts: [%[1]s], secretName: web-tls}]
  rules:
  - host: %[1]s
    http:
      paths:
      - {path: /, pathType: Prefix, backend: %[3]s}
      - {path: /echo, pathType: Exact, backend: %[3]s}
`, host, mode, service)
}

// tenantLabels are the labels that identify a mirrored Service of a hosted cluster.
const tenantLabels = "cluster.x-k8s.io/cluster-name: demo-x7k2p, cluster.x-k8s.io/tenant-service-name: frontend, cluster.x-k8s.io/tenant-service-namespace: shop"

// mirror creates a Service and an EndpointSlice like the mirrored ones of a hosted cluster.
func (s *site) mirror(name, address string) {
	s.t.Helper()
	s.apply(`
apiVersion: v1
kind: Service
metadata: {name: %[1]s, labels: {%[3]s}}
spec: {ports: [{name: http, port: 80, targetPort: %[4]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-x, labels: {kubernetes.io/service-name: %[1]s, endpointslice.kubernetes.io/managed-by: lab}}
addressType: IPv4
endpoints: [{addresses: [%[2]s], conditions: {ready: true}}]
ports: [{name: http, port: %[4]d, protocol: TCP}]
`, name, address, tenantLabels, nodePort)
}

// removeMirrored deletes the objects of mirror.
func (s *site) removeMirrored(name string) {
	s.t.Helper()
	service, slice := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	service.Name, slice.Name = name, name+"-x"
	for _, o := range []client.Object{service, slice} {
		o.SetNamespace(s.namespace)
		lab.Must(s.t, client.IgnoreNotFound(s.client.Delete(s.t.Context(), o)))
	}
}

// awaitService waits until the VirtualIngress is ready with a Service and its status has the entry's address,
// and returns the backend in its status.
func (s *site) awaitService(name string) v1alpha1.VirtualIngressBackendStatus {
	s.t.Helper()
	var backend v1alpha1.VirtualIngressBackendStatus
	await(s.t, "the VirtualIngress to resolve to Service "+name, func() error {
		v := &v1alpha1.VirtualIngress{}
		if err := s.get("web", v); err != nil {
			return err
		}
		if len(v.Status.Backends) != 1 || v.Status.Backends[0].Service != name || !meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionReady) ||
			len(v.Status.LoadBalancer.Ingress) != 1 || v.Status.LoadBalancer.Ingress[0].IP != entry {
			return fmt.Errorf("status is %+v", v.Status)
		}
		backend = v.Status.Backends[0]
		return nil
	})
	return backend
}

// ingress returns the generated Ingress.
func (s *site) ingress() *networkingv1.Ingress {
	s.t.Helper()
	i := &networkingv1.Ingress{}
	lab.Must(s.t, s.get("web-generated", i))
	return i
}

// awaitSecret waits until cert-manager has issued the certificate, and returns it.
func (s *site) awaitSecret() *corev1.Secret {
	s.t.Helper()
	secret := &corev1.Secret{}
	await(s.t, "cert-manager to issue the certificate", func() error {
		return s.get("web-tls", secret)
	})
	return secret
}

// service returns a Service.
func (s *site) service(name string) *corev1.Service {
	s.t.Helper()
	o := &corev1.Service{}
	lab.Must(s.t, s.get(name, o))
	return o
}

// endpoints returns the addresses of a Service's endpoints with their ports.
func (s *site) endpoints(service string) []string {
	s.t.Helper()
	list := &discoveryv1.EndpointSliceList{}
	lab.Must(s.t, s.client.List(s.t.Context(), list, client.InNamespace(s.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}))
	var all []string
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			for _, p := range slice.Ports {
				all = append(all, fmt.Sprintf("%s:%d", e.Addresses[0], *p.Port))
			}
		}
	}
	return all
}
