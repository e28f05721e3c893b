package cmd

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// networkUsers are a NodePool, and a VM and an Infra that use addresses of the same VLAN.
const networkUsers = `
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
	s.Setup() // installs our CRDs
	s.Run("teardown", "demo", "-n", s.Namespace, "--yes")
	s.Apply(strings.ReplaceAll(networkUsers, "NS", s.Namespace))
	describe := []string{"setup", "demo", "-n", s.Namespace, "--hosted-cluster", "demo", "--upstream", "203.0.113.53", "--wait=false"}
	_, stderr, code := s.Run(describe...)
	want := strings.ReplaceAll("Infra NS/demo: hosted cluster NS/demo; network NS/vlan100, 192.0.2.0/24, gateway 192.0.2.1; "+
		"DHCP 192.0.2.4, DNS 192.0.2.5, proxy 192.0.2.6, VMs 192.0.2.7-192.0.2.127\n", "NS/", s.Namespace+"/")
	if code != 0 || !strings.HasPrefix(stderr, want) {
		t.Fatalf("setup exited with %d, stderr\n%s\nwant the prefix\n%s", code, stderr, want)
	}
	before := s.Everything()
	for _, again := range [][]string{describe, {"setup", "demo", "-n", s.Namespace, "--wait=false"}} {
		if _, stderr, code := s.Run(again...); code != 0 || stderr != "" {
			t.Errorf("%q exited with %d, stderr %s", again, code, stderr)
		}
	}
	s.Unchanged(before)
	_, stderr, code = s.Run("setup", "demo", "-n", s.Namespace, "--dns-ip", "192.0.2.9", "--range", "192.0.2.10-192.0.2.127", "--wait=false")
	if code != 0 || !strings.Contains(stderr, "StatefulSet "+s.Namespace+"/demo-dns configured") || strings.Contains(stderr, "/demo-proxy configured") {
		t.Errorf("with another DNS address, setup exited with %d, stderr %s", code, stderr)
	}

	// Fields from a file that no flag describes are not lost.
	s.Infra = strings.NewReplacer("192.0.2.3", "192.0.2.9, image: example.com/dns:1", "192.0.2.2,", "192.0.2.4,", "192.0.2.4", "192.0.2.6").Replace(s.Infra)
	s.Setup()
	_, stderr, code = s.Run("setup", "demo", "-n", s.Namespace, "--dns-ip", "192.0.2.8", "--wait=false")
	infra := s.Object(read.InfraKind, "demo")
	if dns, _, _ := unstructured.NestedMap(infra.Object, "spec", "infraComponents", "dns"); code != 0 || dns["serverIP"] != "192.0.2.8" || dns["image"] != "example.com/dns:1" {
		t.Errorf("setup exited with %d, stderr %s; the Infra has %v", code, stderr, dns)
	}
}

func TestInsufficientFlags(t *testing.T) {
	s := newSite(t)
	for _, tc := range []struct{ line, want string }{
		{"setup", "specify a file with -f, or the name of an Infra"},
		{"setup --cidr 192.0.2.0/24", "--cidr describes an Infra without a file; specify the name of the Infra as argument, or omit --cidr"},
		{"setup -f FILE --dns-ip 192.0.2.9", "--dns-ip describes an Infra without a file; specify the name of the Infra as argument, or omit --dns-ip"},
		{"setup demo -f FILE", "error: flags describe Infra $NS/demo and the files contain Infra $NS/demo; specify one of them\n"},
		{"diff demo -f FILE", "error: flags describe Infra $NS/demo and the files contain Infra $NS/demo; specify one of them\n"},
		{"setup demo --hosted-cluster demo", "error: Infra $NS/demo does not exist, and --network is required to create it: the NetworkAttachmentDefinition of the VMs (NAMESPACE/NAME)\n"},
		{"setup demo --hosted-cluster demo --network vlan100", "--cidr is required to create it: the subnet of the VLAN"},
		{"setup demo --hosted-cluster demo --network vlan100 --cidr 192.0.2.0/30 --gateway 192.0.2.1", "--dns-ip: no free address in 192.0.2.0/30"},
		{"setup demo --hosted-cluster demo --network vlan100 --cidr 2001:db8::/64 --gateway 2001:db8::1", "--dhcp-ip is required"},
		{"setup demo --hosted-cluster demo --network vlan100 --cidr invalid --gateway 192.0.2.1", `--cidr "invalid": want a subnet`},
		{"setup demo --hosted-cluster demo --network vlan101 --cidr 192.0.2.0/24 --gateway 192.0.2.1", "vlan101 does not exist"},
	} {
		before := s.Everything()
		code, line := 1, tc.line+" -n $NS"
		if strings.HasPrefix(line, "diff") {
			code = 2
		}
		s.Expect(code, line, tc.want)
		s.Unchanged(before)
	}
}

// TestMissingNetworkErrorNamesCandidates creates a NetworkAttachmentDefinition in another namespace, and a
// ClusterUserDefinedNetwork of OVN-Kubernetes, whose CRD here has only the names.
func TestMissingNetworkErrorNamesCandidates(t *testing.T) {
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
	s.Refused(strings.ReplaceAll("does not exist; create it, let setup create it (--make-network), or specify it as NAMESPACE/NAME; NetworkAttachmentDefinition NS-demo/NS exists; ClusterUserDefinedNetwork NS creates it in the namespaces", "NS", s.Namespace))
}

// TestVLANWithoutRouter checks that neither VMs nor pods get a router on a VLAN that has none, and that setup deploys it.
func TestVLANWithoutRouter(t *testing.T) {
	s := newSite(t)
	describe := strings.Fields("setup demo -n " + s.Namespace + " --hosted-cluster demo --network vlan100 --cidr 192.0.2.0/24 --gateway none")
	if _, stderr, code := s.Run(append(describe, "--wait=false")...); code != 0 || !strings.Contains(stderr, "192.0.2.0/24, gateway none; DHCP 192.0.2.1, ") {
		t.Fatalf("setup exited with %d, stderr %s", code, stderr)
	}
	for _, tc := range []struct{ apiVersion, kind, name, field, word string }{
		{"v1", "ConfigMap", s.ConfigOf("demo-dhcp"), "data", "router:"},
		{"k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", s.NetworkOf("demo-proxy"), "spec", `"gateway":`},
	} {
		u := s.Object(schema.FromAPIVersionAndKind(tc.apiVersion, tc.kind), tc.name)
		if text := fmt.Sprint(u.Object[tc.field]); strings.Contains(text, tc.word) || !strings.Contains(text, "192.0.2.3") {
			t.Errorf("%s has %s, want no %s", tc.kind, text, tc.word)
		}
	}
	if out, stderr, code := s.Run(append(describe, "--dry-run=server")...); code != 0 || strings.Contains(out, "configured") {
		t.Errorf("the second setup exited with %d, stderr %s, stdout %s", code, stderr, out)
	}
}

// TestMissingNamespaceIsTheOnlyError runs setup for an existing Infra, with a typo in metadata.namespace or in every
// namespace of the file.
func TestMissingNamespaceIsTheOnlyError(t *testing.T) {
	s := newSite(t)
	s.Setup()
	good, typo := s.Infra, "typo-"+s.Namespace
	want := "error: namespace " + typo + " of Infra " + typo + "/demo does not exist; correct the namespace, or create it first\n"
	inTypo := strings.Replace(good, "metadata: {name: demo, namespace: ", "metadata: {name: demo, namespace: typo-", 1)
	for name, infra := range map[string]string{
		"metadata.namespace":                         inTypo,
		"metadata.namespace, and a complete network": strings.Replace(inTypo, "networkAttachmentDefinition: vlan100", "networkAttachmentDefinition: vlan100, networkAttachmentNamespace: "+s.Namespace, 1),
		"all namespaces":                             strings.ReplaceAll(good, s.Namespace, typo),
	} {
		s.Infra = infra
		if _, stderr, code := s.Run("setup", "-f", "FILE", "--wait=false"); code != 1 || strings.TrimSpace(stderr) != strings.TrimSpace(want) {
			t.Errorf("%s: setup exited with %d, stderr %q, want %q", name, code, stderr, want)
		}
	}
}
