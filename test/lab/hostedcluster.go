package lab

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// A HostedCluster is one on KubeVirt that HyperShift's CRD accepts.
type HostedCluster struct {
	Namespace, Name, BaseDomain string
	// API is its API server's hostname; api.NAME.BASEDOMAIN if empty.
	API string
	// Publishing says how its other services are published, in YAML; by a Route that names
	// no host, where nothing is said.
	Publishing map[string]string
	// More are further lines of its spec, indented as those are.
	More string
}

// YAML returns it as a document, and begins the next.
func (c HostedCluster) YAML() string {
	var services strings.Builder
	for _, service := range []string{"OAuthServer", "Konnectivity", "Ignition"} {
		fmt.Fprintf(&services, "  - {service: %s, servicePublishingStrategy: %s}\n", service, cmp.Or(c.Publishing[service], "{type: Route}"))
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
  - {service: APIServer, servicePublishingStrategy: {type: LoadBalancer, loadBalancer: {hostname: %[4]s}}}
%[5]s%[6]s
---
`, c.Namespace, c.Name, c.BaseDomain, c.api(), services.String(), c.More)
}

func (c HostedCluster) api() string { return cmp.Or(c.API, "api."+c.Name+"."+c.BaseDomain) }

// ControlPlaneNamespace is where HyperShift runs its control plane.
func (c HostedCluster) ControlPlaneNamespace() string {
	return c.Namespace + "-" + strings.ReplaceAll(c.Name, ".", "-")
}

// Backend is a Service of the control plane with the server behind it, in YAML. Where clusterIP is
// empty the Service has any.
func (c HostedCluster) Backend(service string, port int, at netip.AddrPort, clusterIP string) string {
	if clusterIP != "" {
		clusterIP = ", clusterIP: " + clusterIP
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {ports: [{port: %[3]d}]%[4]s}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: "", port: %[6]d, protocol: TCP}]
endpoints: [{addresses: [%[5]s], conditions: {ready: true}}]
---
`, service, c.ControlPlaneNamespace(), port, clusterIP, at.Addr(), at.Port())
}

// AdminKubeconfig is the hosted administrator's as HyperShift writes it: with the API server's
// public name.
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

// HandOver has the management cluster know that the hosted control plane is there, as HyperShift
// does: a Secret has the administrator's kubeconfig, with the API server's public name, and the
// HostedCluster, which is applied already, says which.
func (c HostedCluster) HandOver(ctx context.Context, management, hosted *ControlPlane) error {
	data, err := c.AdminKubeconfig(hosted)
	if err != nil {
		return err
	}
	name := c.Name + "-admin-kubeconfig"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}, Data: map[string][]byte{"kubeconfig": data}}
	if err := management.Apply(ctx, secret); err != nil {
		return err
	}
	return management.ApplyStatusYAML(ctx, fmt.Appendf(nil, `
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: %s, namespace: %s}
status: {kubeconfig: {name: %s}}
`, c.Name, c.Namespace, name))
}

// NetworkPolicies are those that HyperShift has in the namespace of a control plane on KubeVirt
// whose Routes the management cluster's routers serve, in YAML; that for virtual machines' own
// pods is not among them. They are of hypershift v0.1.81,
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

// PublishedRoute is a HostedCluster's way to publish a service by a Route with a hostname.
func PublishedRoute(host string) string { return "{type: Route, route: {hostname: " + host + "}}" }
