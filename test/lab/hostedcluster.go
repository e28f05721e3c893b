package lab

import "fmt"

// HostedClusterYAML is a HostedCluster on KubeVirt that HyperShift's CRD accepts, whose API
// server is api.NAME.BASEDOMAIN, as a YAML document.
func HostedClusterYAML(namespace, name, baseDomain string) string {
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
  - {service: APIServer, servicePublishingStrategy: {type: LoadBalancer, loadBalancer: {hostname: api.%[2]s.%[3]s}}}
  - {service: OAuthServer, servicePublishingStrategy: {type: Route}}
  - {service: Konnectivity, servicePublishingStrategy: {type: Route}}
  - {service: Ignition, servicePublishingStrategy: {type: Route}}
---
`, namespace, name, baseDomain)
}
