package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/yaml"
)

// A Site names a hosted cluster and its VLAN, and returns their objects as YAML documents that end with a separator, so that they
// can be concatenated. The zero value is the demo site: HostedCluster clusters/demo with the VLAN 192.0.2.0/24.
//
// Functions with changes merge them, in order, into the object as kubectl patch --type=merge does: a change is YAML with the
// fields to set, null removes a field, and a list replaces the list. They panic if a change is not YAML.
//
//	site := lab.Site{VLAN: "198.18.50", Network: "vlan50"}
//	cp.MustApply(t, site.Namespaces(), site.HostedCluster().YAML(), site.Infra("spec: {infraComponents: {dhcp: null}}"),
//		site.VirtualMachineInstance("worker-a", "02:00:00:00:00:01", "metadata: {annotations: {a: b}}"))
type Site struct {
	// Namespace and Name are of the HostedCluster, the Infra and the ProxyServer. The defaults are clusters and demo.
	Namespace, Name string
	// BaseDomain is the HostedCluster's. The default is example.com.
	BaseDomain string
	// VLAN has the first three bytes of the VLAN's addresses. The default is 192.0.2.
	VLAN string
	// Network is the NetworkAttachmentDefinition of the VLAN, as NAME or NAMESPACE/NAME. The default is vlan.
	Network string
}

func (s Site) namespace() string { return cmp.Or(s.Namespace, "clusters") }
func (s Site) name() string      { return cmp.Or(s.Name, "demo") }
func (s Site) network() string   { return cmp.Or(s.Network, "vlan") }

// qualifiedNetwork returns the network with its namespace.
func (s Site) qualifiedNetwork() string {
	if strings.Contains(s.network(), "/") {
		return s.network()
	}
	return s.namespace() + "/" + s.network()
}

// Domain returns the domain of the hosted cluster, NAME.BASEDOMAIN.
func (s Site) Domain() string { return s.name() + "." + cmp.Or(s.BaseDomain, "example.com") }

// ControlPlaneNamespace returns the namespace in which HyperShift runs the control plane.
func (s Site) ControlPlaneNamespace() string { return s.HostedCluster().ControlPlaneNamespace() }

// IP returns the address on the VLAN with a last byte.
func (s Site) IP(last int) string { return fmt.Sprintf("%s.%d", cmp.Or(s.VLAN, "192.0.2"), last) }

// HostedCluster returns the HostedCluster with its infraID, NAME-x7k2p.
func (s Site) HostedCluster() HostedCluster {
	return HostedCluster{Namespace: s.namespace(), Name: s.name(), BaseDomain: cmp.Or(s.BaseDomain, "example.com"), More: "  infraID: " + s.infraID()}
}

// HostedClusterWithHosts is HostedCluster whose Routes have the hostnames oauth.DOMAIN, konnectivity.DOMAIN and ignition.DOMAIN.
func (s Site) HostedClusterWithHosts() HostedCluster {
	c := s.HostedCluster()
	c.Publishing = map[string]string{}
	for _, service := range []string{"OAuthServer", "Konnectivity", "Ignition"} {
		c.Publishing[service] = PublishedRoute(strings.ToLower(strings.TrimSuffix(service, "Server")) + "." + s.Domain())
	}
	return c
}

func (s Site) infraID() string { return s.name() + "-x7k2p" }

// Namespaces returns the namespaces of the HostedCluster and of its control plane.
func (s Site) Namespaces() string { return Namespaces(s.namespace(), s.ControlPlaneNamespace()) }

// Infra returns the site's Infra. Its gateway has the address 1 on the VLAN, DHCP 2 (it leases 10 to 99), DNS 3, and the proxy 4.
func (s Site) Infra(changes ...string) string {
	return Merge(fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  hostedClusterRef: {name: %[1]s}
  networkConfig: {cidr: %[3]s.0/24, gateway: %[3]s.1, networkAttachmentDefinition: %[4]s}
  infraComponents:
    dhcp: {serverIP: %[3]s.2, rangeStart: %[3]s.10, rangeEnd: %[3]s.99}
    dns: {serverIP: %[3]s.3}
    proxy: {serverIP: %[3]s.4}
`, s.name(), s.namespace(), cmp.Or(s.VLAN, "192.0.2"), s.network()), changes...)
}

// ProxyServer returns the Infra's ProxyServer, without backends.
func (s Site) ProxyServer(changes ...string) string {
	return Merge(fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: %[1]s, namespace: %[2]s}
spec: {infraRef: {name: %[1]s}, networkConfig: {serverIP: %[3]s}}
`, s.name(), s.namespace(), s.IP(4)), changes...)
}

// NodePool returns a NodePool whose VMs are only on the site's network.
func (s Site) NodePool(name string, changes ...string) string {
	return Merge(fmt.Sprintf(`
apiVersion: hypershift.openshift.io/v1beta1
kind: NodePool
metadata: {name: %s, namespace: %s}
spec:
  clusterName: %s
  replicas: 2
  management: {upgradeType: Replace}
  release: {image: registry.example.com/release:4.20}
  platform: {type: KubeVirt, kubevirt: {attachDefaultNetwork: false, additionalNetworks: [{name: %s}]}}
`, name, s.namespace(), s.name(), s.qualifiedNetwork()), changes...)
}

// VirtualMachine returns a VirtualMachine of the hosted cluster, without spec, which the CRD does not require.
func (s Site) VirtualMachine(name string, changes ...string) string {
	return Merge(fmt.Sprintf("{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: %s, namespace: %s}}",
		name, s.ControlPlaneNamespace()), changes...)
}

// VirtualMachineInstance returns a VM of the hosted cluster whose interface "vlan" is on the site's network.
func (s Site) VirtualMachineInstance(name, mac string, changes ...string) string {
	return Merge(fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: %s, namespace: %s, labels: {hypershift.openshift.io/infra-id: %s}}
spec:
  networks: [{name: vlan, multus: {networkName: %s}}]
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: %q}]}}
`, name, s.ControlPlaneNamespace(), s.infraID(), s.qualifiedNetwork(), mac), changes...)
}

// Lease returns DHCP's Lease of an address, in state bound, released or declined.
func (s Site) Lease(address, state, holder string, used time.Time, changes ...string) string {
	return Merge(fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: %[1]s.%[2]s.%[3]s
  namespace: %[1]s
  labels: {leasedb.densityops.com/pool: %[1]s.%[2]s, leasedb.densityops.com/family: ipv4, leasedb.densityops.com/state: %[4]s}
spec: {holderIdentity: %[5]q, leaseDurationSeconds: 3600, renewTime: %[6]q}
`, s.namespace(), s.name(), address, state, holder, used.UTC().Format("2006-01-02T15:04:05.000000Z")), changes...)
}

// OwnedByVM is a change to a VirtualMachineInstance: the VirtualMachine with its name controls it. If uid is empty, it is made up.
func OwnedByVM(name, uid string) string {
	return fmt.Sprintf("metadata: {ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: %s, uid: %s, controller: true}]}",
		name, cmp.Or(uid, "0f3b7d4e-0000-4000-8000-000000000001"))
}

// Namespaces returns namespaces.
func Namespaces(names ...string) string {
	var list strings.Builder
	for _, name := range names {
		list.WriteString("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n---\n")
	}
	return list.String()
}

// BridgeNetwork returns a NetworkAttachmentDefinition for a bridge of the node.
func BridgeNetwork(namespace, name, bridge string) string {
	return fmt.Sprintf(`apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %[2]s, namespace: %[1]s}
spec: {config: '{"cniVersion": "0.3.1", "name": %[2]q, "type": "bridge", "bridge": %[3]q}'}
---
`, namespace, name, bridge)
}

// Service returns a Service with one TCP port, and without a selector.
func Service(namespace, name string, port int, changes ...string) string {
	return Merge(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s}, spec: {ports: [{port: %d}]}}",
		name, namespace, port), changes...)
}

// LoadBalancer returns a Service of type LoadBalancer with port 443.
func LoadBalancer(namespace, name string, changes ...string) string {
	return Service(namespace, name, 443, append([]string{"spec: {type: LoadBalancer}"}, changes...)...)
}

// Route returns a Route that is not admitted.
func Route(namespace, name, host, service string, changes ...string) string {
	return Merge(fmt.Sprintf("{apiVersion: route.openshift.io/v1, kind: Route, metadata: {name: %s, namespace: %s}, "+
		"spec: {host: %s, to: {kind: Service, name: %s, weight: 100}}}",
		name, namespace, host, service), changes...)
}

// Endpoints returns the EndpointSlice of a Service's unnamed TCP port. Its endpoints, which have the same port, are ready.
func Endpoints(namespace, service string, endpoints ...netip.AddrPort) string {
	family, port, list := "IPv4", uint16(1), []string{}
	for _, at := range endpoints {
		if at.Addr().Is6() {
			family = "IPv6"
		}
		port = at.Port()
		list = append(list, fmt.Sprintf("{addresses: [%q], conditions: {ready: true}}", at.Addr()))
	}
	return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports: [{name: "", port: %[4]d, protocol: TCP}]
endpoints: [%[5]s]
---
`, service, namespace, family, port, strings.Join(list, ", "))
}

// Merge returns the object of a YAML document with changes, as Site describes them.
func Merge(object string, changes ...string) string {
	merged := mustJSON(object)
	for _, change := range changes {
		var err error
		if merged, err = jsonpatch.MergePatch(merged, mustJSON(change)); err != nil {
			panic(fmt.Sprintf("merging %s: %v", change, err))
		}
	}
	document, err := yaml.JSONToYAML(merged)
	if err != nil {
		panic(fmt.Sprintf("formatting %s: %v", object, err))
	}
	return string(document) + "---\n"
}

func mustJSON(document string) []byte {
	content, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		panic(fmt.Sprintf("parsing %s: %v", document, err))
	}
	if string(content) == "null" { // an empty change
		return []byte("{}")
	}
	return content
}
