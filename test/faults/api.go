package faults

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func apiFaults() []Fault {
	return []Fault{
		{Name: "control is down", Break: func(s *Site) {
			s.Undo(func() { s.Await("control", s.controlAvailable) })
			for _, name := range s.controlPods() {
				s.PatchStatus(podKind, "oooi-system", name, unreadyStatus)
			}
			s.Await("control to be unavailable", func() bool { return !s.controlAvailable() })
		}, Want: []string{"CTL-001 fail"}},
		{Name: "Deployment of control does not exist", Break: func(s *Site) {
			s.Undo(func() { s.Await("control", s.controlAvailable) })
			s.Remove(deploymentKind, "oooi-system", "oooi-control") // orphans the pods, which the new Deployment adopts
		}, Want: []string{"CTL-001 fail"}},
		{Name: "control has not observed an edit of the Infra", Break: func(s *Site) {
			s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"dhcp": {"leaseTime": "2h"}}}}`)
		}, Want: []string{"CTL-002 fail"}},
		{Name: "quota permits no more Leases", Want: []string{"API-003 fail"}, Says: "of at most 0 Leases: coredhcp cannot create another one", Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: $ns}\nspec: {hard: {count/leases.coordination.k8s.io: \"0\"}}\n")
			s.Await("the quota to be enforced", func() bool {
				_, ok, _ := unstructured.NestedMap(s.Get(quotaKind, "$ns", "none").Object, "status", "used")
				return ok
			})
		}},
		{Name: "webhook for Leases has no Service", Want: []string{"API-004 fail"}, Says: `webhook "leases.example.com" cannot be reached: its Service `, Break: func(s *Site) { s.addLeaseWebhook() }},
		{Name: "webhook for Leases has no endpoint", Want: []string{"API-004 fail"}, Says: "has no ready endpoint", Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: Service\nmetadata: {name: gone, namespace: $ns}\nspec: {ports: [{port: 443}], selector: {app: gone}}\n")
			s.addLeaseWebhook()
		}},
	}
}

// addLeaseWebhook creates a webhook for Leases whose Service is $ns/gone, until Mend.
func (s *Site) addLeaseWebhook() {
	s.Helper()
	rejected := func() bool {
		return s.Client.Create(s.Context(), object(leaseKind, s.Namespace, "probe"), client.DryRunAll) != nil
	}
	s.Undo(func() { s.Await("Leases to be admitted", func() bool { return !rejected() }) })
	s.Add(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: $ns-leases}
webhooks:
- name: leases.example.com
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {service: {namespace: $ns, name: gone}}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], resources: ["leases"], operations: [CREATE]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
`)
	s.Await("Leases to be rejected", rejected)
}

// crdFaults returns the fault of a missing CRD, which keeps the cluster's garbage collector busy for a while.
func crdFaults() []Fault {
	return []Fault{{Name: "CustomResourceDefinition does not exist", Break: removeProxyServerCRD, Want: []string{"API-001 fail"}}}
}

// removeProxyServerCRD deletes the CRD of ProxyServers, and with it all ProxyServers of the cluster, until
// Mend.
func removeProxyServerCRD(s *Site) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(proxyKind)
	if err := s.Client.List(s.Context(), list); err != nil {
		s.Fatal(err)
	}
	before := s.delete(crdKind, "", "proxyservers.hostedcluster.densityops.com")
	s.Undo(func() {
		s.recreate(before)
		for i := range list.Items {
			server := &list.Items[i]
			s.Await("the API of ProxyServers", func() bool {
				again := server.DeepCopy()
				again.SetResourceVersion("")
				again.SetUID("")
				return client.IgnoreAlreadyExists(s.Client.Create(s.Context(), again)) == nil
			})
		}
	})
}
