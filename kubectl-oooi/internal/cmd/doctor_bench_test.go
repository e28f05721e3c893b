package cmd

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/densityops/oooi/test/lab"
)

// BenchmarkDoctor checks 100 Infras, each with a HostedCluster, control-plane Services and Routes, and 20 leases. The Infras have no
// pods, which the lab's control plane cannot run, so doctor asks no daemon for its problems.
func BenchmarkDoctor(b *testing.B) {
	const infras, leases = 100, 20
	cp := lab.New(b, lab.Config{Name: "fleet"})
	if err := cp.InstallCRDs(b.Context(), lab.Oooi, lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.KubeVirt); err != nil {
		b.Fatal(err)
	}
	if err := cp.ApplyYAML(b.Context(), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: clusters}}")); err != nil {
		b.Fatal(err)
	}
	for i := range infras {
		name := fmt.Sprintf("member-%d", i)
		objects := lab.HostedCluster{
			Namespace: "clusters", Name: name, BaseDomain: "example.com", More: "  infraID: " + name + "-x7k2p",
			Publishing: map[string]string{
				"OAuthServer": lab.PublishedRoute("oauth." + name + ".example.com"), "Konnectivity": lab.PublishedRoute("konnectivity." + name + ".example.com"),
				"Ignition": lab.PublishedRoute("ignition." + name + ".example.com"),
			},
		}.YAML() + strings.NewReplacer("NUMBER", fmt.Sprint(i)).Replace(fleetMember)
		for n := range leases {
			objects += strings.NewReplacer("NUMBER", fmt.Sprint(i), "HOST", fmt.Sprint(100+n)).Replace(fleetLease)
		}
		if err := cp.ApplyYAML(b.Context(), []byte(objects)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		var out strings.Builder
		code := Main(b.Context(), []string{"kubectl-oooi", "--kubeconfig", cp.Kubeconfig(), "doctor", "-A"}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: io.Discard})
		if got := strings.Count(out.String(), "Infra clusters/member-"); code != failedCheckCode || got < infras {
			b.Fatalf("exit code %d, %d Infras: %.2000s", code, got, out.String())
		}
	}
}

// fleetMember are the objects of one Infra besides its HostedCluster.
const fleetMember = `
apiVersion: v1
kind: Namespace
metadata: {name: clusters-member-NUMBER}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan-NUMBER, namespace: clusters}
spec: {config: '{"cniVersion": "0.3.1", "type": "bridge", "bridge": "brNUMBER"}'}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: member-NUMBER, namespace: clusters}
spec:
  hostedClusterRef: {name: member-NUMBER, namespace: clusters}
  networkConfig: {cidr: 10.1.NUMBER.0/24, gateway: 10.1.NUMBER.1, networkAttachmentDefinition: vlan-NUMBER, dnsServers: [203.0.113.53]}
  infraComponents:
    dhcp: {serverIP: 10.1.NUMBER.2, rangeStart: 10.1.NUMBER.100, rangeEnd: 10.1.NUMBER.199}
    dns: {serverIP: 10.1.NUMBER.3}
    proxy: {serverIP: 10.1.NUMBER.4}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: member-NUMBER, namespace: clusters}
spec: {infraRef: {name: member-NUMBER}, networkConfig: {serverIP: 10.1.NUMBER.4}}
---
apiVersion: v1
kind: Service
metadata: {name: kube-apiserver, namespace: clusters-member-NUMBER}
spec: {ports: [{name: client, port: 6443}]}
---
apiVersion: v1
kind: Service
metadata: {name: oauth-openshift, namespace: clusters-member-NUMBER}
spec: {ports: [{name: https, port: 6443}]}
---
apiVersion: v1
kind: Service
metadata: {name: ignition-server-proxy, namespace: clusters-member-NUMBER}
spec: {ports: [{name: https, port: 443}]}
---
apiVersion: v1
kind: Service
metadata: {name: konnectivity-server, namespace: clusters-member-NUMBER}
spec: {ports: [{name: tunnel, port: 8091}]}
---
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: oauth, namespace: clusters-member-NUMBER}
spec: {host: oauth.member-NUMBER.example.com, to: {kind: Service, name: oauth-openshift, weight: 100}}
---
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: ignition-server, namespace: clusters-member-NUMBER}
spec: {host: ignition.member-NUMBER.example.com, to: {kind: Service, name: ignition-server-proxy, weight: 100}}
`

const fleetLease = `
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: clusters.member-NUMBER.10.1.NUMBER.HOST
  namespace: clusters
  labels: {leasedb.densityops.com/pool: clusters.member-NUMBER, leasedb.densityops.com/family: ipv4, leasedb.densityops.com/state: bound, leasedb.densityops.com/vm: vm-HOST, leasedb.densityops.com/mac: 02-00-00-00-00-11, leasedb.densityops.com/hostname: vm-HOST}
spec: {holderIdentity: clusters-member-NUMBER/vm-HOST/vlan, leaseDurationSeconds: 3600, renewTime: "2026-01-02T03:05:00.000000Z"}
`
