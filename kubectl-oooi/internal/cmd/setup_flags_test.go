package cmd

import (
	"strings"
	"testing"
)

// machines are a NodePool and a machine of another one on the VLAN, with another Infra.
const machines = `
apiVersion: hypershift.openshift.io/v1beta1
kind: NodePool
metadata: {name: workers, namespace: NS}
spec:
  clusterName: demo
  replicas: 2
  management: {upgradeType: Replace}
  release: {image: quay.io/openshift-release-dev/ocp-release:4.18.1-multi}
  platform:
    type: KubeVirt
    kubevirt: {attachDefaultNetwork: false, additionalNetworks: [{name: NS/vlan100}]}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: other, namespace: NS}
spec:
  domain: {devices: {interfaces: [{name: vlan, bridge: {}}, {name: elsewhere, bridge: {}}]}}
  networks: [{name: vlan, multus: {networkName: vlan100}}, {name: elsewhere, multus: {networkName: vlan200}}]
status: {interfaces: [{name: vlan, ipAddress: 192.0.2.3, ipAddresses: [192.0.2.3]}, {name: elsewhere, ipAddress: 192.0.2.4, ipAddresses: [192.0.2.4]}]}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: other, namespace: NS}
spec:
  hostedClusterRef: {name: other, namespace: NS}
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100}
  infraComponents:
    dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.128, rangeEnd: 192.0.2.254}
    dns: {enabled: false}
    proxy: {enabled: false}
`

func TestFlagsDescribeAnInfra(t *testing.T) {
	s := newSite(t)
	s.Setup() // for our CRDs
	s.Run("teardown", "demo", "-n", s.Namespace, "--yes")
	s.Apply(strings.ReplaceAll(machines, "NS", s.Namespace))
	describe := []string{"setup", "demo", "-n", s.Namespace, "--hosted-cluster", "demo", "--upstream", "203.0.113.53", "--wait=false"}
	_, said, code := s.Run(describe...)
	want := strings.ReplaceAll("Infra NS/demo: hosted cluster NS/demo; network NS/vlan100, 192.0.2.0/24, gateway 192.0.2.1; "+
		"DHCP 192.0.2.4, DNS 192.0.2.5, proxy 192.0.2.6, VMs 192.0.2.7-192.0.2.127\n", "NS/", s.Namespace+"/")
	if code != 0 || !strings.HasPrefix(said, want) {
		t.Fatalf("setup ended with %d and said\n%s\nwant at first\n%s", code, said, want)
	}
	before := s.Everything()
	for _, again := range [][]string{describe, {"setup", "demo", "-n", s.Namespace, "--wait=false"}} {
		if _, said, code := s.Run(again...); code != 0 || said != "" {
			t.Errorf("%q ended with %d and said %s", again, code, said)
		}
	}
	s.Unchanged(before)
	_, said, code = s.Run("setup", "demo", "-n", s.Namespace, "--dns-ip", "192.0.2.9", "--range", "192.0.2.10-192.0.2.127", "--wait=false")
	if code != 0 || !strings.Contains(said, "StatefulSet "+s.Namespace+"/demo-dns configured") || strings.Contains(said, "/demo-proxy configured") {
		t.Errorf("with another address, setup ended with %d and said %s", code, said)
	}

	// What a file has said is not lost.
	s.Infra = strings.NewReplacer("192.0.2.3", "192.0.2.9, image: example.com/dns:1", "192.0.2.2,", "192.0.2.4,", "192.0.2.4", "192.0.2.6").Replace(s.Infra)
	s.Setup()
	_, said, code = s.Run("setup", "demo", "-n", s.Namespace, "--dns-ip", "192.0.2.8", "--wait=false")
	if code != 1 || !strings.Contains(said, "has fields without a flag") {
		t.Errorf("setup ended with %d and said %s", code, said)
	}
}

func TestFlagsThatDoNotSuffice(t *testing.T) {
	s := newSite(t)
	for _, tc := range []struct{ line, says string }{
		{"setup", "specify a file with -f, or the name of an Infra"},
		{"setup --cidr 192.0.2.0/24", "--cidr describes an Infra without a file and requires its name as argument"},
		{"setup -f FILE --dns-ip 192.0.2.9", "--dns-ip describes an Infra without a file and requires its name as argument"},
		{"setup demo -f FILE --hosted-cluster demo --network vlan100 --cidr 192.0.2.0/24 --gateway 192.0.2.1", "specify one of them"},
		{"setup demo --hosted-cluster demo --network vlan100", "--cidr: specify the subnet of the VLAN"},
		{"setup demo --hosted-cluster demo --network vlan100 --cidr 192.0.2.0/30 --gateway 192.0.2.1", "--dns-ip: no free address in 192.0.2.0/30"},
		{"setup demo --hosted-cluster demo --network vlan100 --cidr 2001:db8::/64 --gateway 2001:db8::1", "--dhcp-ip is required"},
		{"setup demo --hosted-cluster demo --network vlan100 --cidr there --gateway 192.0.2.1", `invalid --cidr "there"`},
		{"setup demo --hosted-cluster demo --network vlan101 --cidr 192.0.2.0/24 --gateway 192.0.2.1", "vlan101 does not exist"},
	} {
		before := s.Everything()
		_, said, code := s.Run(append(strings.Fields(tc.line), "-n", s.Namespace, "--wait=false")...)
		if code != 1 || !strings.Contains(said, tc.says) {
			t.Errorf("%s ended with %d and said %swant %s", tc.line, code, said, tc.says)
		}
		s.Unchanged(before)
	}
}

// TestANetworkElsewhereIsNamed: by OVN-Kubernetes' kind as well, of which a test needs the name.
func TestANetworkElsewhereIsNamed(t *testing.T) {
	s := newSite(t)
	s.Apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusteruserdefinednetworks.k8s.ovn.org}
spec:
  group: k8s.ovn.org
  scope: Cluster
  names: {kind: ClusterUserDefinedNetwork, plural: clusteruserdefinednetworks, singular: clusteruserdefinednetwork}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`)
	s.Apply(strings.ReplaceAll(`
apiVersion: k8s.ovn.org/v1
kind: ClusterUserDefinedNetwork
metadata: {name: NS}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: NS, namespace: NS-demo}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "br-vlan100"}'}
`, "NS", s.Namespace))
	s.Infra = strings.ReplaceAll(s.Infra, "vlan100", s.Namespace)
	s.Refused(strings.ReplaceAll("does not exist; create it, let setup create it (--make-network), or specify it as NAMESPACE/NAME; there is a NS-demo/NS; ClusterUserDefinedNetwork NS creates it in the namespaces", "NS", s.Namespace))
}
