package faults

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func hostedFaults() []Fault {
	return []Fault{
		{Name: "HostedCluster does not exist", Break: func(s *Site) { s.Remove(hostedKind, "$ns", "demo") }, Want: []string{"HC-001 fail"}},
		{Name: "etcd is unavailable", Break: hostedCondition("EtcdAvailable", "False", "QuorumLost"), Want: []string{"HC-002 fail"}},
		{Name: "hosted API server is unavailable", Break: hostedCondition("KubeAPIServerAvailable", "False", "NotFound"), Want: []string{"HC-002 fail"}},
		{Name: "ignition endpoint is unavailable", Break: hostedCondition("IgnitionEndpointAvailable", "False", "Missing"), Want: []string{"HC-002 fail"}},
		{Name: "control plane is degraded", Break: hostedCondition("Degraded", "True", "Unavailable"), Want: []string{"HC-002 warn"}},
		{Name: "API server is published by address", Break: publishedByAddress, Want: []string{"HC-003 fail"}},
		{Name: "VMs are on another network", Break: func(s *Site) {
			s.Patch(nodePoolKind, "$ns", "workers", `{"spec": {"platform": {"kubevirt": {"additionalNetworks": [{"name": "default/vlan7"}]}}}}`)
		}, Want: []string{"HC-004 fail"}},
		{Name: "Multus rejects the VMs", Want: []string{"NET-008 fail"}, Says: "so does VirtualMachineInstance", Break: func(s *Site) {
			s.Add(`{apiVersion: v1, kind: ConfigMap, metadata: {name: multus-cni-config, namespace: kube-system}, data: {cni-conf.json: '{"type": "multus", "namespaceIsolation": true}'}}`)
		}},
	}
}

// hostedCondition returns a function that sets a condition of the HostedCluster.
func hostedCondition(kind, status, reason string) func(*Site) {
	return func(s *Site) {
		s.PatchStatus(hostedKind, "$ns", "demo", `{"status": {"conditions": [`+condition(kind, status, reason)+`]}}`)
	}
}

// publishedByAddress recreates the HostedCluster with a Service published by address, since spec.services is
// immutable.
func publishedByAddress(s *Site) {
	hosted := object(hostedKind, s.Namespace, "demo")
	hosted.Object["spec"] = s.Get(hostedKind, "$ns", "demo").Object["spec"]
	s.Remove(hostedKind, "$ns", "demo")
	services, _, _ := unstructured.NestedSlice(hosted.Object, "spec", "services")
	for i, service := range services {
		if service, ok := service.(map[string]any); ok && service["service"] == "APIServer" {
			services[i] = map[string]any{"service": "APIServer", "servicePublishingStrategy": map[string]any{"type": "LoadBalancer"}}
		}
	}
	if err := unstructured.SetNestedSlice(hosted.Object, services, "spec", "services"); err != nil {
		s.Fatal(err)
	}
	if err := s.Client.Create(s.Context(), hosted); err != nil {
		s.Fatal(err)
	}
	s.Undo(func() { s.delete(hostedKind, "$ns", "demo") })
}
