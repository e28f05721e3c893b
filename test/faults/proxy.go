package faults

import "fmt"

func proxyFaults() []Fault {
	return []Fault{
		{Name: "a ProxyServer that is another's", Break: func(s *Site) {
			s.Patch(proxyKind, "$ns", "demo", `{"spec": {"infraRef": {"name": "other"}}}`)
		}, Want: []string{"PRX-001 fail"}},
		{Name: "no ProxyServer", Break: func(s *Site) { s.Remove(proxyKind, "$ns", "demo") }, Want: []string{"PRX-001 fail"}},
		{Name: "an API server without endpoints", Break: noEndpoints, Want: []string{"PRX-002 fail"}},
		{Name: "no konnectivity", Break: noKonnectivity, Want: []string{"PRX-002 fail"}},
		{Name: "no ignition server", Break: func(s *Site) { s.Remove(serviceKind, "$ns-demo", "ignition-server-proxy") }, Want: []string{"PRX-002 fail"}},
		{Name: "konnectivity at the port of old samples", Break: oldSample("konnectivity-server", 8132), Want: []string{"PRX-002 fail"}},
		{Name: "ignition at the Service of old samples", Break: oldSample("ignition-server", 22623), Want: []string{"PRX-002 fail"}},
		{Name: "an Envoy that refuses", Break: func(s *Site) {
			s.replica(`"version": "8", "acknowledged": "7", "nack": "listener 443: no"`)
		}, Want: []string{"PRX-003 fail"}},
		{Name: "an xdsd that lags", Break: func(s *Site) {
			s.PatchStatus(proxyKind, "$ns", "demo", `{"status": {"replicas": [{"pod": "demo-proxy-0", "observedGeneration": 0, "version": "7", "acknowledged": "7"}]}}`)
		}, Want: []string{"PRX-004 fail"}},
		{Name: "an Envoy with the configuration of before", Break: func(s *Site) { s.replica(`"version": "8", "acknowledged": "7"`) }, Want: []string{"PRX-004 fail"}},
		{Name: "a replica that never reported", Break: func(s *Site) {
			s.PatchStatus(proxyKind, "$ns", "demo", `{"status": {"replicas": []}}`)
		}, Want: []string{"PRX-004 fail"}},
		{Name: "policies that keep the proxy out", Break: shutOut, Want: []string{"PRX-005 fail"}},
		{Name: "a port that takes nothing", Break: func(s *Site) {
			s.replica(`"version": "7", "acknowledged": "7", "listeners": [{"port": 443, "ready": false, "reason": "EOF"}]`)
		}, Want: []string{"PRX-006 fail"}},
	}
}

func noEndpoints(s *Site) {
	s.Patch(sliceKind, "$ns-demo", "kube-apiserver-1", `{"endpoints": [{"addresses": ["10.128.0.7"], "conditions": {"ready": false}}]}`)
}

func noKonnectivity(s *Site) { s.Remove(serviceKind, "$ns-demo", "konnectivity-server") }

// oldSample is a backend that was copied from where the port is another, or the Service.
func oldSample(service string, port int) func(*Site) {
	return func(s *Site) {
		s.Patch(proxyKind, "$ns", "demo", fmt.Sprintf(`{"spec": {"backends": [{"name": "old", "hostname": "old.demo.example.com", "port": 443,
			"targetService": %q, "targetPort": %d, "targetNamespace": "$ns-demo"}]}}`, service, port))
		s.seen()
	}
}

// shutOut takes away the policy that admits the proxy.
func shutOut(s *Site) { s.Remove(policyKind, "$ns-demo", "oooi-$ns-demo-proxy") }
