//go:build e2e

package e2eingress_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/ingresstest"
	"github.com/densityops/oooi/test/lab"
)

// site is a namespace with a VirtualIngress called web and its objects.
type site struct{ *ingresstest.Site }

// virtualIngress creates the VirtualIngress for a host, with annotations of cert-manager and Contour.
func (s *site) virtualIngress(host, mode string) {
	s.Helper()
	const service = `{service: {matchLabels: {` + tenantLabels + `}, port: {number: 80}}}`
	s.Apply(fmt.Sprintf(`
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
`, host, mode, service))
}

// tenantLabels are the labels that identify a mirrored Service of a hosted cluster.
const tenantLabels = "cluster.x-k8s.io/cluster-name: demo-x7k2p, cluster.x-k8s.io/tenant-service-name: frontend, cluster.x-k8s.io/tenant-service-namespace: shop"

// awaitService waits until the VirtualIngress is ready with a Service and its status has the entry's address,
// and returns the backend in its status.
func (s *site) awaitService(name string) v1alpha1.VirtualIngressBackendStatus {
	s.Helper()
	var backend v1alpha1.VirtualIngressBackendStatus
	lab.Await(s, "the VirtualIngress to resolve to Service "+name, func() string {
		v := s.Virtual("web")
		if len(v.Status.Backends) != 1 || v.Status.Backends[0].Service != name || !meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionReady) ||
			len(v.Status.LoadBalancer.Ingress) != 1 || v.Status.LoadBalancer.Ingress[0].IP != entry {
			return fmt.Sprintf("status is %+v", v.Status)
		}
		backend = v.Status.Backends[0]
		return ""
	})
	return backend
}

// awaitSecret waits until cert-manager has issued the certificate, and returns it.
func (s *site) awaitSecret() *corev1.Secret {
	s.Helper()
	secret := &corev1.Secret{}
	lab.Poll(s, "cert-manager to issue the certificate", func() bool { return s.Get(secret, "web-tls") })
	return secret
}
