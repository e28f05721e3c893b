package faults

import "fmt"

func proxyFaults() []Fault {
	return []Fault{
		{Name: "ProxyServer belongs to another Infra", Break: func(s *Site) {
			s.Patch(proxyKind, "$ns", "demo", `{"spec": {"infraRef": {"name": "other"}}}`)
		}, Want: []string{"PRX-001 fail"}},
		{Name: "ProxyServer does not exist", Break: func(s *Site) { s.Remove(proxyKind, "$ns", "demo") }, Want: []string{"PRX-001 fail"}},
		{Name: "API server has no ready endpoint", Break: unreadyEndpoints, Want: []string{"PRX-002 fail"}},
		{Name: "Service of konnectivity does not exist", Break: removeKonnectivity, Want: []string{"PRX-002 fail"}},
		{Name: "Service of the ignition server does not exist", Break: func(s *Site) { s.Remove(serviceKind, "$ns-demo", "ignition-server-proxy") }, Want: []string{"PRX-002 fail"}},
		{Name: "backend has konnectivity's port of earlier samples", Break: sampleBackend("konnectivity-server", 8132), Want: []string{"PRX-002 fail"}},
		{Name: "backend has the ignition Service of earlier samples", Break: sampleBackend("ignition-server", 22623), Want: []string{"PRX-002 fail"}},
		{Name: "Envoy rejects its configuration", Break: func(s *Site) {
			s.reportReplica(`"version": "8", "acknowledged": "7", "nack": "listener 443: no"`)
		}, Want: []string{"PRX-003 fail"}},
		{Name: "xdsd has not observed the ProxyServer", Break: func(s *Site) {
			s.PatchStatus(proxyKind, "$ns", "demo", `{"status": {"replicas": [{"pod": "demo-proxy-0", "observedGeneration": 0, "version": "7", "acknowledged": "7"}]}}`)
		}, Want: []string{"PRX-004 fail"}},
		{Name: "Envoy has the previous configuration", Break: func(s *Site) { s.reportReplica(`"version": "8", "acknowledged": "7"`) }, Want: []string{"PRX-004 fail"}},
		{Name: "replica has not reported", Break: func(s *Site) {
			s.PatchStatus(proxyKind, "$ns", "demo", `{"status": {"replicas": []}}`)
		}, Want: []string{"PRX-004 fail"}},
		{Name: "NetworkPolicies do not admit the proxy", Break: removeProxyPolicy, Want: []string{"PRX-005 fail"}},
		{Name: "port accepts no connections", Break: func(s *Site) {
			s.reportReplica(`"version": "7", "acknowledged": "7", "listeners": [{"port": 443, "ready": false, "reason": "EOF"}]`)
		}, Want: []string{"PRX-006 fail"}},
	}
}

func unreadyEndpoints(s *Site) {
	s.Patch(sliceKind, "$ns-demo", "kube-apiserver-1", `{"endpoints": [{"addresses": ["10.128.0.7"], "conditions": {"ready": false}}]}`)
}

func removeKonnectivity(s *Site) { s.Remove(serviceKind, "$ns-demo", "konnectivity-server") }

// sampleBackend returns a function that adds a backend as in samples of the earlier operator, with a wrong port
// or Service.
func sampleBackend(service string, port int) func(*Site) {
	return func(s *Site) {
		s.Patch(proxyKind, "$ns", "demo", fmt.Sprintf(`{"spec": {"backends": [{"name": "old", "hostname": "old.demo.example.com", "port": 443,
			"targetService": %q, "targetPort": %d, "targetNamespace": "$ns-demo"}]}}`, service, port))
		s.markObserved()
	}
}

// removeProxyPolicy deletes the NetworkPolicy that admits the proxy.
func removeProxyPolicy(s *Site) { s.Remove(policyKind, "$ns-demo", "oooi-$ns-demo-proxy") }
