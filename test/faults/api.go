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
	}
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
