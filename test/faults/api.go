package faults

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func apiFaults() []Fault {
	return []Fault{
		{Name: "a control that is down", Break: func(s *Site) {
			s.Undo(func() { s.Await("control", s.controlAvailable) })
			for _, name := range s.controlPods() {
				s.PatchStatus(podKind, "oooi-system", name, unready)
			}
			s.Await("control to be missed", func() bool { return !s.controlAvailable() })
		}, Want: []string{"CTL-001 fail"}},
		{Name: "no control at all", Break: func(s *Site) {
			s.Undo(func() { s.Await("control", s.controlAvailable) })
			s.Remove(deploymentKind, "oooi-system", "oooi-control") // not its pods, which it finds again
		}, Want: []string{"CTL-001 fail"}},
		{Name: "an Infra that was edited, and control has not seen it", Break: func(s *Site) {
			s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"dhcp": {"leaseTime": "2h"}}}}`)
		}, Want: []string{"CTL-002 fail"}},
	}
}

// lastFaults leave the cluster's garbage collector busy for a while.
func lastFaults() []Fault {
	return []Fault{{Name: "a CustomResourceDefinition that is gone", Break: noProxyServers, Want: []string{"API-001 fail"}}}
}

// noProxyServers takes the CRD away, by which all ProxyServers of the cluster go.
func noProxyServers(s *Site) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(proxyKind)
	if err := s.Client.List(s.Context(), list); err != nil {
		s.Fatal(err)
	}
	before := s.delete(crdKind, "", "proxyservers.hostedcluster.densityops.com")
	s.Undo(func() {
		s.again(before)
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
