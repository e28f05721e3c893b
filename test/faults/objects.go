package faults

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kinds of objects that prevent the creation of pods, or report that it failed.
var (
	quotaKind = schema.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"}
	eventKind = schema.GroupVersionKind{Version: "v1", Kind: "Event"}
)

// siteFaults returns faults of objects that setup, an administrator or HyperShift created.
func siteFaults() []Fault {
	return []Fault{
		{Name: "Corefile was edited", Want: []string{"INF-002 warn"}, Break: func(s *Site) {
			s.Patch(configMapKind, "$ns", "demo-dns", `{"data": {"Corefile": ".:53 {\n    bind net1\n    log\n}\n"}}`)
		}},
		{Name: "proxy's Service lacks the API server's port", Want: []string{"INF-002 fail"}, Break: func(s *Site) {
			s.Patch(serviceKind, "$ns", "demo-proxy", `{"spec": {"ports": [{"name": "port-443", "port": 443, "protocol": "TCP", "targetPort": 443}]}}`)
		}},
		{Name: "Service of DNS selects other pods", Want: []string{"INF-002 fail"}, Break: func(s *Site) {
			s.Patch(serviceKind, "$ns", "demo-dns", `{"spec": {"selector": {"app": "other"}}}`)
		}},
		{Name: "Service of the proxy has a foreign endpoint", Want: []string{"SVC-001 fail"}, Break: func(s *Site) {
			s.Add("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: theirs, namespace: $ns, labels: {kubernetes.io/service-name: demo-proxy}}\n" +
				"addressType: IPv4\nports: [{name: https, port: 443}]\nendpoints: [{addresses: [10.128.0.99]}]\n")
		}},
		{Name: "StatefulSet lost its label", Want: []string{"INF-002 warn"}, Break: func(s *Site) {
			s.Patch(setKind, "$ns", "demo-dns", `{"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}`)
		}},
		{Name: "quota rejects our pods", Want: []string{"POD-005 fail"}, Break: func(s *Site) {
			pod := s.Get(podKind, "$ns", "demo-dns-0")
			s.Undo(func() { s.recreatePod(pod) })
			s.Add("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: $ns}\nspec: {hard: {pods: \"0\"}}\n")
			s.Await("the quota to be enforced", func() bool {
				_, ok, _ := unstructured.NestedMap(s.Get(quotaKind, "$ns", "none").Object, "status", "hard")
				return ok
			})
			if err := s.Client.Delete(s.Context(), pod); err != nil {
				s.Fatal(err)
			}
			s.Await("the pod to be rejected", func() bool { return s.podRejected("demo-dns", "exceeded quota") })
		}},
		{Name: "LimitRange would reject our pods", Want: []string{"POD-012 warn"}, Says: "container coredns: its cpu request ", Break: func(s *Site) { s.addLimitRange() }},
		{Name: "default limit of a LimitRange would reject our pods", Want: []string{"POD-012 warn"}, Says: "is more than the default limit 1Mi", Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: LimitRange\nmetadata: {name: defaults, namespace: $ns}\nspec: {limits: [{type: Container, default: {memory: 1Mi}, defaultRequest: {memory: 1Mi}}]}\n")
		}},
		{Name: "LimitRange rejects the pod of DNS", Want: []string{"POD-005 fail", "POD-012 warn"}, Says: "edit limitrange small", Break: func(s *Site) {
			pod := s.Get(podKind, "$ns", "demo-dns-0")
			s.Undo(func() { s.recreatePod(pod) })
			s.addLimitRange()
			if err := s.Client.Delete(s.Context(), pod); err != nil {
				s.Fatal(err)
			}
			s.Await("the pod to be rejected", func() bool { return s.podRejected("demo-dns", "minimum cpu usage per Container") })
		}},
		{Name: "pods run two builds of one image", Want: []string{"POD-006 warn"}, Break: func(s *Site) {
			for pod, container := range map[string]string{"demo-dns-0": "coredns", "demo-proxy-0": "xdsd"} {
				s.PatchStatus(podKind, "$ns", pod, `{"status": {"containerStatuses": [{"name": "`+container+`", "image": "", "imageID": "sha256:`+container+`", "ready": true, "restartCount": 0, "state": {"running": {}}}]}}`)
			}
		}},
		{Name: "VMs are on a macvlan", Want: []string{"NET-005 fail"}, Break: func(s *Site) {
			s.Patch(nadKind, "$ns", "$vlan", `{"spec": {"config": "{\"cniVersion\": \"0.3.1\", \"name\": \"vlan\", \"type\": \"macvlan\", \"master\": \"eth1\"}"}}`)
		}},
		{Name: "DHCP options set another MTU than the network's", Want: []string{"NET-005 fail"}, Break: func(s *Site) {
			s.Patch(nadKind, "$ns", "$vlan", `{"spec": {"config": "{\"cniVersion\": \"0.3.1\", \"name\": \"vlan\", \"type\": \"bridge\", \"bridge\": \"br0\", \"mtu\": 1500}"}}`)
			s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"dhcp": {"options": [{"code": 26, "value": "9000"}]}}}}`)
			s.markObserved()
		}},
		{Name: "Service of a deleted Infra exists", Want: []string{"OLD-002 warn"}, Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: Service\nmetadata: {name: gone-dns, namespace: $ns, labels: {app.kubernetes.io/managed-by: oooi}, annotations: {hostedcluster.densityops.com/infra: $ns/gone}}\nspec: {ports: [{port: 53}]}\n")
		}},
		{Name: "API of the earlier operator exists", Want: []string{"OLD-003 warn"}, Break: func(s *Site) {
			s.Undo(func() {
				s.Await("the API to be deleted", func() bool { return s.Get(crdKind, "", "dhcpservers.hostedcluster.densityops.com") == nil })
			})
			s.Add("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: dhcpservers.hostedcluster.densityops.com}\nspec:\n  group: hostedcluster.densityops.com\n  scope: Namespaced\n" +
				"  names: {plural: dhcpservers, singular: dhcpserver, kind: DHCPServer, listKind: DHCPServerList}\n" +
				"  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n")
		}},
		{Name: "NodePool exceeds the DHCP ranges", Want: []string{"DHCP-013 warn"}, Break: func(s *Site) {
			s.Patch(nodePoolKind, "$ns", "workers", `{"spec": {"replicas": 90}}`)
		}},
		{Name: "idle timeout of the proxy is too short", Want: []string{"PRX-014 warn"}, Break: func(s *Site) {
			s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"proxy": {"idleTimeout": "30s"}}}}`)
			s.markObserved()
		}},
		{Name: "konnectivity does not reach the nodes", Want: []string{"HC-002 warn"}, Break: func(s *Site) {
			s.PatchStatus(hostedKind, "$ns", "demo", `{"status": {"conditions": [`+condition("DataPlaneConnectionAvailable", "False", "NoKonnectivityAgents")+`]}}`)
		}},
	}
}

// addLimitRange creates a LimitRange with a minimum above our requests, until Mend. It waits until the API server enforces
// it.
func (s *Site) addLimitRange() {
	s.Helper()
	s.Add("apiVersion: v1\nkind: LimitRange\nmetadata: {name: small, namespace: $ns}\nspec: {limits: [{type: Container, min: {cpu: 250m}, max: {cpu: \"4\"}}]}\n")
	s.Await("the LimitRange to be enforced", func() bool {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "small"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "x", Image: "example.com/x", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}},
		}}}}
		return s.Client.Create(s.Context(), pod, client.DryRunAll) != nil
	})
}

// podRejected reports whether creating the pod of a StatefulSet failed with an error that contains a text.
func (s *Site) podRejected(set, text string) bool {
	s.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(eventKind)
	if err := s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)); err != nil {
		s.Fatal(err)
	}
	return slices.ContainsFunc(list.Items, func(e unstructured.Unstructured) bool {
		name, _, _ := unstructured.NestedString(e.Object, "involvedObject", "name")
		message, _, _ := unstructured.NestedString(e.Object, "message")
		return e.Object["reason"] == "FailedCreate" && name == set && strings.Contains(message, text)
	})
}
