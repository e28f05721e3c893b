package faults

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// simulatedObjects are objects of a simulated site that exist before setup, beside the HostedCluster and the
// network.
const simulatedObjects = `
apiVersion: operator.openshift.io/v1
kind: DNS
metadata: {name: default}
spec: {}
---
apiVersion: v1
kind: Namespace
metadata: {name: $ns-demo}
---
apiVersion: v1
kind: Node
metadata: {name: node-a}
---
apiVersion: v1
kind: Node
metadata: {name: node-b}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: kas, namespace: $ns-demo}
spec: {podSelector: {matchLabels: {app: kube-apiserver}}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {matchLabels: {name: openshift-monitoring}}}]}]}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: worker-a, namespace: $ns-demo}
spec:
  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}
  networks: [{name: vlan, multus: {networkName: $vmnet}}]
status: {phase: Running, phaseTransitionTimestamps: [{phase: Running, phaseTransitionTimestamp: "2026-01-02T03:04:05Z"}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: $ns.demo.$net.10, namespace: $ns, labels: {leasedb.densityops.com/pool: $ns.demo, leasedb.densityops.com/state: bound}}
spec: {holderIdentity: $ns-demo/worker-a/vlan, renewTime: "2026-01-02T03:04:05.000000Z"}
---
apiVersion: hypershift.openshift.io/v1beta1
kind: NodePool
metadata: {name: workers, namespace: $ns}
spec:
  clusterName: demo
  replicas: 2
  management: {upgradeType: Replace}
  release: {image: registry.example.com/release:4.20}
  platform: {type: KubeVirt, kubevirt: {attachDefaultNetwork: false, additionalNetworks: [{name: $ns/$vlan}]}}
`

// podMetrics is a CRD with which the API server stores PodMetrics, in place of a metrics-server.
const podMetrics = `
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pods.metrics.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, in place of a metrics-server"}}
spec:
  group: metrics.k8s.io
  scope: Namespaced
  names: {plural: pods, singular: pod, kind: PodMetrics, listKind: PodMetricsList}
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// NewSimulated returns a healthy site on an API server with a controller manager, on which HostedCluster demo
// and the network exist. setup must deploy the Infra demo with DHCP, DNS and the proxy at the second to fourth
// addresses, with an apps ingress and with --cluster-dns=patch. The objects are deleted with their namespace,
// and the DNS object and the Nodes of the cluster at the end of the test.
func NewSimulated(t *testing.T, s *Site, setup func()) *Site {
	t.Helper()
	s.T = t
	s.Apply(simulatedObjects + podMetrics)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, o := range []client.Object{object(dnsKind, "", "default"), object(nodeKind, "", "node-a"), object(nodeKind, "", "node-b")} {
			if err := client.IgnoreNotFound(s.Client.Delete(ctx, o)); err != nil {
				t.Error(err)
			}
		}
	})
	for name, port := range map[string]uint16{"kube-apiserver": 6443, "oauth-openshift": 6443, "ignition-server-proxy": 443, "konnectivity-server": 8091} {
		s.Apply(lab.HostedCluster{Namespace: "$ns", Name: "demo"}.Backend(name, int(port), netip.AddrPortFrom(netip.MustParseAddr("10.128.0.7"), port), ""))
	}
	setup()
	for _, node := range []string{"node-a", "node-b"} {
		s.sendHeartbeats(t, node)
		s.PatchStatus(nodeKind, "", node, `{"status": {"conditions": [`+condition("Ready", "True", "KubeletReady")+`]}}`)
	}
	for pod, address := range map[string]string{"demo-dhcp-0": "2", "demo-dns-0": "3", "demo-proxy-0": "4"} {
		s.Await("Pod "+pod, func() bool { return s.Get(podKind, "$ns", pod) != nil })
		if node := map[string]string{"demo-dhcp-0": "node-a", "demo-proxy-0": "node-b"}[pod]; node != "" { // others are deleted, which would need a kubelet
			s.bind(pod, node)
		}
		s.Patch(podKind, "$ns", pod, `{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status":
			"[{\"name\": \"ovn\", \"default\": true, \"ips\": [\"10.128.0.9\"]}, {\"name\": \"x\", \"ips\": [\"$net.`+address+`\"]}]"}}}`)
		s.PatchStatus(podKind, "$ns", pod, runningStatus)
	}
	s.Await("control's pods", func() bool {
		list := s.controlPods()
		for _, name := range list {
			s.PatchStatus(podKind, "oooi-system", name, runningStatus)
		}
		return len(list) > 0
	})
	s.Await("the Deployment of control", func() bool { return s.controlAvailable() })
	s.PatchStatus(hostedKind, "$ns", "demo", `{"status": {"conditions": [`+condition("EtcdAvailable", "True", "AsExpected")+`, `+condition("Degraded", "False", "AsExpected")+`]}}`)
	s.PatchStatus(infraKind, "$ns", "demo", fmt.Sprintf(`{"status": {"componentStatus": {"dhcpReady": true, "dnsReady": true, "proxyReady": true},
		"appsIngress": {"phase": "Ready", "externalIP": "$net.200", "externalIPs": ["$net.200"]}, "conditions": [%s, %s]}}`,
		condition("Ready", "True", "Ready"), condition("NamesServed", "True", "Served")))
	s.undo = nil // the healthy state stays
	s.markObserved()
	return s
}

// sendHeartbeats renews the Lease of a node until the end of the test, as the kubelet does. Without it, the node lifecycle
// controller reports the node as lost.
func (s *Site) sendHeartbeats(t *testing.T, node string) {
	t.Helper()
	renew := func() error {
		now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		lease := client.RawPatch(types.ApplyPatchType, []byte(`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": "`+corev1.NamespaceNodeLease+`", "name": "`+node+`"}, "spec": {"holderIdentity": "`+node+`", "renewTime": "`+now+`"}}`))
		return s.Client.Patch(t.Context(), object(leaseKind, corev1.NamespaceNodeLease, node), lease, client.FieldOwner("kubelet"), client.ForceOwnership)
	}
	if err := renew(); err != nil {
		t.Fatal(err)
	}
	var heartbeats sync.WaitGroup
	t.Cleanup(heartbeats.Wait)
	heartbeats.Go(func() {
		for t.Context().Err() == nil {
			select {
			case <-t.Context().Done():
			case <-time.After(10 * time.Second):
				if err := renew(); err != nil && t.Context().Err() == nil {
					t.Errorf("heartbeat of %s: %v", node, err)
				}
			}
		}
	})
}

// bind assigns a pod to a node, as the scheduler does.
func (s *Site) bind(pod, node string) {
	s.Helper()
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: pod}}
	if err := s.Client.SubResource("binding").Create(s.Context(), o, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}); err != nil {
		s.Fatal(err)
	}
}

const runningStatus = `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`

// unreadyStatus is the status that the kubelet writes of a running pod that is not ready.
const unreadyStatus = `{"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`

// condition returns a condition in JSON.
func condition(kind, status, reason string) string {
	return fmt.Sprintf(`{"type": %q, "status": %q, "reason": %q, "message": "x", "lastTransitionTime": "2026-01-02T03:04:05Z"}`, kind, status, reason)
}

func (s *Site) controlPods() []string {
	s.Helper()
	list := &corev1.PodList{}
	if err := s.Client.List(s.Context(), list, client.InNamespace("oooi-system")); err != nil {
		s.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func (s *Site) controlAvailable() bool {
	s.Helper()
	n, _, _ := unstructured.NestedInt64(s.Get(deploymentKind, "oooi-system", "oooi-control").Object, "status", "availableReplicas")
	return n > 0
}

// markObserved writes that control and xdsd have observed the current objects. It does nothing if these run and
// write it themselves.
func (s *Site) markObserved() {
	s.Helper()
	if s.Node != nil || s.LiveDaemons {
		return
	}
	before := s.undo
	s.PatchStatus(infraKind, "$ns", "demo", fmt.Sprintf(`{"status": {"observedGeneration": %d}}`, s.Get(infraKind, "$ns", "demo").GetGeneration()))
	s.reportReplica(`"version": "7", "acknowledged": "7", "listeners": [{"port": 443, "ready": true}]`)
	s.undo = before // Mend does not revert it
}

// reportReplica writes xdsd's status of the proxy replica, with the given fields in JSON.
func (s *Site) reportReplica(fields string) {
	s.Helper()
	s.PatchStatus(proxyKind, "$ns", "demo", fmt.Sprintf(`{"status": {"replicas": [{"pod": "demo-proxy-0", "observedGeneration": %d, %s}]}}`,
		s.Get(proxyKind, "$ns", "demo").GetGeneration(), fields))
}
