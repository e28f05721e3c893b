package lab

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
)

// A HostedCluster is a minimal HostedCluster on KubeVirt that HyperShift's CRD accepts.
type HostedCluster struct {
	Namespace, Name, BaseDomain string
	// API is the hostname of its API server. The default is api.NAME.BASEDOMAIN.
	API string
	// Publishing has the servicePublishingStrategy of its services in YAML, by service. The default is a
	// LoadBalancer with API as its hostname for APIServer, and a Route without a hostname for the others.
	Publishing map[string]string
	// More are additional lines of its spec in YAML, indented by two spaces.
	More string
}

// YAML returns the object as a YAML document that ends with a separator.
func (c HostedCluster) YAML() string {
	var services strings.Builder
	for _, s := range [][2]string{
		{"APIServer", "{type: LoadBalancer, loadBalancer: {hostname: " + c.api() + "}}"},
		{"OAuthServer", "{type: Route}"}, {"Konnectivity", "{type: Route}"}, {"Ignition", "{type: Route}"},
	} {
		fmt.Fprintf(&services, "  - {service: %s, servicePublishingStrategy: %s}\n", s[0], cmp.Or(c.Publishing[s[0]], s[1]))
	}
	return fmt.Sprintf(`
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  dns: {baseDomain: %[3]s}
  etcd: {managementType: Managed, managed: {storage: {type: PersistentVolume, persistentVolume: {size: 8Gi}}}}
  networking: {clusterNetwork: [{cidr: 10.132.0.0/14}], serviceNetwork: [{cidr: 172.31.0.0/16}], networkType: OVNKubernetes}
  platform: {type: KubeVirt, kubevirt: {}}
  pullSecret: {name: pull-secret}
  release: {image: registry.example.com/release:4.20}
  sshKey: {}
  services:
%[4]s%[5]s
---
`, c.Namespace, c.Name, c.BaseDomain, services.String(), c.More)
}

func (c HostedCluster) api() string { return cmp.Or(c.API, "api."+c.Name+"."+c.BaseDomain) }

// ControlPlaneNamespace returns the namespace in which HyperShift runs the control plane.
func (c HostedCluster) ControlPlaneNamespace() string {
	return c.Namespace + "-" + strings.ReplaceAll(c.Name, ".", "-")
}

// Backend returns a Service of the control plane, and an EndpointSlice with the server at its address, in
// YAML. If clusterIP is empty, the API server allocates one.
func (c HostedCluster) Backend(service string, port int, at netip.AddrPort, clusterIP string) string {
	var changes []string
	if clusterIP != "" {
		changes = append(changes, "spec: {clusterIP: "+clusterIP+"}")
	}
	return Service(c.ControlPlaneNamespace(), service, port, changes...) + Endpoints(c.ControlPlaneNamespace(), service, at)
}

// AdminKubeconfig returns the hosted administrator's kubeconfig with the API server's public name, as
// HyperShift writes it.
func (c HostedCluster) AdminKubeconfig(hosted *ControlPlane) ([]byte, error) {
	config, err := clientcmd.LoadFromFile(hosted.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's kubeconfig of %s: %w", c.Name, err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + c.api() + ":6443"
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the administrator's kubeconfig of %s: %w", c.Name, err)
	}
	return data, nil
}

// RootCA returns the ConfigMap with which HyperShift publishes the CA of the API server. Source: hypershift,
// control-plane-operator/controllers/hostedcontrolplane/manifests/pki.go.
func (c HostedCluster) RootCA(ca []byte) *corev1.ConfigMap { return c.publishedCA("root-ca", ca) }

// KonnectivityCA returns the ConfigMap with which HyperShift publishes the CA of konnectivity, from the same source.
func (c HostedCluster) KonnectivityCA(ca []byte) *corev1.ConfigMap {
	return c.publishedCA("konnectivity-ca-bundle", ca)
}

func (c HostedCluster) publishedCA(name string, ca []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ControlPlaneNamespace(), Name: name}, Data: map[string]string{"ca.crt": string(ca)}}
}

// PublishKubeconfig publishes the hosted control plane in the management cluster as HyperShift does: it
// creates a Secret with the AdminKubeconfig, and references it in the status of the HostedCluster, which must
// exist, and creates the ConfigMap of RootCA.
func (c HostedCluster) PublishKubeconfig(ctx context.Context, management, hosted *ControlPlane) error {
	data, err := c.AdminKubeconfig(hosted)
	if err != nil {
		return err
	}
	name := c.Name + "-admin-kubeconfig"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}, Data: map[string][]byte{"kubeconfig": data}}
	if err := management.Apply(ctx, secret); err != nil {
		return err
	}
	if err := management.Apply(ctx, c.RootCA(hosted.CA())); err != nil {
		return err
	}
	return management.ApplyStatusYAML(ctx, fmt.Appendf(nil, `
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: %s, namespace: %s}
status: {kubeconfig: {name: %s}}
`, c.Name, c.Namespace, name))
}

// NetworkPolicies returns, in YAML, the NetworkPolicies that HyperShift creates in the namespace of a control
// plane on KubeVirt whose Routes are served by the management cluster's routers, except the one for
// virt-launcher pods. Source: hypershift v0.1.81,
// hypershift-operator/controllers/hostedcluster/network_policies.go.
func (c HostedCluster) NetworkPolicies() string {
	const policy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %[2]s, namespace: %[1]s}
spec: {podSelector: %[3]s, policyTypes: [Ingress], ingress: [%[4]s]}
---
`
	var list strings.Builder
	for _, p := range []struct{ name, pods, ingress string }{
		{"same-namespace", "{}", "{from: [{podSelector: {}}]}"},
		{"kas", "{matchLabels: {app: kube-apiserver}}", "{ports: [{port: 6443, protocol: TCP}]}"},
		{"openshift-monitoring", "{}", "{from: [{namespaceSelector: {matchLabels: {network.openshift.io/policy-group: monitoring}}}]}"},
		{"openshift-ingress", "{}", "{from: [{namespaceSelector: {matchLabels: {network.openshift.io/policy-group: ingress}}}]}"},
	} {
		fmt.Fprintf(&list, policy, c.ControlPlaneNamespace(), p.name, p.pods, p.ingress)
	}
	return list.String()
}

// HyperShiftCases are the names of HyperShiftObjects: how all services of a HostedCluster are published.
var HyperShiftCases = []string{"cli-default", "load-balancer", "node-port", "route"}

// HyperShiftObjects returns what HyperShift writes for HostedCluster clusters/demo in a case, from testdata/hypershift: the
// HostedCluster with spec.services and its status, and Services, Routes and NetworkPolicies of its control plane.
func HyperShiftObjects(tb testing.TB, name string) (hostedCluster *unstructured.Unstructured, controlPlane []*unstructured.Unstructured) {
	tb.Helper()
	objects, err := ParseYAML(ReadFile(tb, "test", "lab", "testdata", "hypershift", name+".yaml"))
	Must(tb, err)
	return objects[0], objects[1:]
}

// PublishedRoute returns the servicePublishingStrategy of a Route with a hostname, in YAML.
func PublishedRoute(host string) string { return "{type: Route, route: {hostname: " + host + "}}" }
