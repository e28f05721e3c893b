package lab

import (
	"cmp"
	"fmt"
	"strings"
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
`, c.Namespace, c.Name, c.BaseDomain, cmp.Or(c.API, "api."+c.Name+"."+c.BaseDomain), services.String(), c.More)
}

// PublishedRoute is a HostedCluster's way to publish a service by a Route with a hostname.
func PublishedRoute(host string) string { return "{type: Route, route: {hostname: " + host + "}}" }
