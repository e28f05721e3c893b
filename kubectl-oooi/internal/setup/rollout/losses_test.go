package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestSetupRefusesLosses changes an Infra so that present VMs would lose something. One VM has a lease, and one is
// attached to the network.
func TestSetupRefusesLosses(t *testing.T) {
	s := newSite(t)
	s.Apply(lab.HostedCluster{Namespace: s.Namespace, Name: "other", BaseDomain: s.Namespace + ".example.com", More: "  infraID: other-x7k2p"}.YAML() + fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan200, namespace: %[1]s}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan200", "type": "bridge", "bridge": "br-vlan200"}'}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: attached, namespace: %[1]s-demo, labels: {hypershift.openshift.io/infra-id: demo-x7k2p, pool: a}}
spec:
  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}
  networks: [{name: vlan, multus: {networkName: %[1]s/vlan100}}]
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: ended, namespace: %[1]s-demo, labels: {hypershift.openshift.io/infra-id: demo-x7k2p, pool: a}}
spec:
  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}
  networks: [{name: vlan, multus: {networkName: %[1]s/vlan100}}]
status: {phase: Succeeded}
`, s.Namespace))
	s.Setup()
	s.lease("192.0.2.50")
	good := s.Infra
	attached, leased := "VM $NS-demo/attached", "VM $NS-demo/worker"
	both := attached + ", " + leased
	for _, tc := range []struct{ name, old, new, want string }{
		{"DHCP disabled", "dhcp: {", "dhcp: {enabled: false, ", both + " would lose their leases: the change disables spec.infraComponents.dhcp"},
		{"DNS removed", "    dns: {serverIP: 192.0.2.3}\n", "", both + " would lose the names of the hosted cluster: the change disables spec.infraComponents.dns"},
		{"the proxy disabled", "proxy: {", "proxy: {enabled: false, ", both + " would lose their connection to the control plane: the change disables spec.infraComponents.proxy"},
		{"a shorter range", "rangeEnd: 192.0.2.99", "rangeEnd: 192.0.2.40", leased + " (192.0.2.50) would lose their addresses: DHCP no longer leases them; a VM keeps its address only until it is deleted"},
		{"an exclusion", "rangeEnd: 192.0.2.99", "rangeEnd: 192.0.2.99, exclude: [192.0.2.48/30]", leased + " (192.0.2.50) would lose their addresses: DHCP no longer leases them; a VM keeps its address only until it is deleted"},
		{"a smaller subnet", "cidr: 192.0.2.0/24", "cidr: 192.0.2.0/27", leased + " (192.0.2.50) would lose their addresses and names: spec.networkConfig.cidr 192.0.2.0/27 does not contain the addresses"},
		{"another hosted cluster", "hostedClusterRef: {name: demo", "hostedClusterRef: {name: other", both + " would lose their leases, names and connection to the control plane: the Infra changes from HostedCluster $NS/demo to HostedCluster $NS/other"},
		{"another network", "networkAttachmentDefinition: vlan100", "networkAttachmentDefinition: vlan200", attached + " would lose DHCP, DNS and the proxy: spec.networkConfig.networkAttachmentDefinition changes from $NS/vlan100 to $NS/vlan200, to which they are not attached"},
		{"another selector", "dhcp: {", "dhcp: {vmSelector: {matchLabels: {pool: b}}, ", attached + " would lose their leases: spec.infraComponents.dhcp.vmSelector does not select them"},
	} {
		t.Log(tc.name)
		s.Infra = strings.Replace(good, tc.old, tc.new, 1)
		if strings.Contains(tc.new, "/27") {
			s.Infra = strings.Replace(s.Infra, "rangeEnd: 192.0.2.99", "rangeEnd: 192.0.2.29", 1)
		}
		if s.Infra == good {
			t.Fatal("nothing was changed")
		}
		want := strings.ReplaceAll(tc.want, "$NS", s.Namespace)
		s.Refused(want + "; delete or move these VMs first, or use --allow-loss")
		s.Expect(2, "diff -f FILE", want)
		s.Expect(0, "setup -f FILE --dry-run=server --allow-loss", "Warning: "+want+"\n")
	}
	for _, kept := range []string{
		strings.Replace(good, "rangeEnd: 192.0.2.99", "rangeEnd: 192.0.2.60", 1),
		strings.Replace(good, "dhcp: {", "dhcp: {vmSelector: {matchLabels: {pool: a}}, ", 1),
	} {
		s.Infra = kept
		if _, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=server"); code != 0 || strings.Contains(stderr, "would lose") {
			t.Errorf("setup exited with %d and printed %s", code, stderr)
		}
	}
	// The flag is not remembered.
	s.Infra = strings.Replace(good, "proxy: {", "proxy: {enabled: false, ", 1)
	s.Setup("--allow-loss")
	s.Infra = strings.Replace(s.Infra, "dhcp: {", "dhcp: {enabled: false, ", 1)
	s.Refused("the change disables spec.infraComponents.dhcp; ")
}

// TestSetupRefusesDHCPWithoutVMs sets up DHCP for hosted clusters whose VMs it cannot find.
func TestSetupRefusesDHCPWithoutVMs(t *testing.T) {
	s := newSite(t)
	good := s.Infra
	for _, tc := range []struct{ name, platform, want string }{
		{"external", "{type: KubeVirt, kubevirt: {credentials: {infraNamespace: vms, infraKubeConfigSecret: {name: infra, key: kubeconfig}}}}", "the VMs of HostedCluster $NS/external run in another cluster (spec.platform.kubevirt.credentials.infraKubeConfigSecret)"},
		{"agent", "{type: Agent, agent: {agentNamespace: agents}}", "HostedCluster $NS/agent has platform Agent, and DHCP serves only VMs of KubeVirt"},
		{"none", "{type: None}", "HostedCluster $NS/none has platform None, and DHCP serves only VMs of KubeVirt"},
	} {
		hc := lab.HostedCluster{Namespace: s.Namespace, Name: tc.name, BaseDomain: s.Namespace + ".example.com", More: "  infraID: x7k2p"}.YAML()
		s.Apply(strings.Replace(hc, "{type: KubeVirt, kubevirt: {}}", tc.platform, 1))
		s.Infra = strings.Replace(good, "hostedClusterRef: {name: demo", "hostedClusterRef: {name: "+tc.name, 1)
		s.Refused(strings.ReplaceAll(tc.want, "$NS", s.Namespace))
		s.Infra = strings.Replace(s.Infra, "dhcp: {", "dhcp: {enabled: false, ", 1)
		s.Expect(0, "setup -f FILE --dry-run=server")
		s.Infra = strings.Replace(s.Infra, "enabled: false, ", "hosts: [{mac: '52:54:00:00:00:01', hostname: host-a}], ", 1)
		stdout, stderr, code := s.Run("diff", "-f", "FILE")
		if config := strings.Join(strings.Fields(stdout), " "); code != 1 || !strings.Contains(config, "host=52:54:00:00:00:01,hostname=host-a") ||
			!strings.Contains(config, "vms=false") || strings.Contains(config, "virtualmachineinstances") {
			t.Errorf("%s: with hosts diff exited with %d and printed %s%s", tc.name, code, stdout, stderr)
		}
	}
}

// TestSetupOfDHCPOnly sets up DHCP in a cluster that has the VMs of a hosted cluster and not its control plane.
func TestSetupOfDHCPOnly(t *testing.T) {
	s := newSite(t)
	s.Infra = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: vms, namespace: ` + s.Namespace + `}
spec:
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100, dnsServers: [192.0.2.3]}
  infraComponents:
    dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.10, rangeEnd: 192.0.2.99, vmSelector: {matchLabels: {hypershift.openshift.io/infra-id: demo-x7k2p}}}
`
	stdout, stderr, code := s.Run("diff", "-f", "FILE")
	config := strings.Join(strings.Fields(stdout), " ")
	for _, want := range []string{"selector=hypershift.openshift.io/infra-id=demo-x7k2p", "dns: 192.0.2.3", "router: 192.0.2.1"} {
		if code != 1 || !strings.Contains(config, want) {
			t.Fatalf("diff exited with %d, and %s is missing in %s%s", code, want, stdout, stderr)
		}
	}
	if strings.Contains(stderr, "Warning: ") {
		t.Errorf("diff printed %s", stderr)
	}
	if stdout, stderr, code = s.Run("setup", "-f", "FILE", "--dry-run=server"); code != 0 {
		t.Errorf("setup exited with %d and printed %s%s", code, stdout, stderr)
	}
}
