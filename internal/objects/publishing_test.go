package objects

import (
	"strings"
	"testing"
)

func TestServicesThatNodesCannotReach(t *testing.T) {
	entry := func(service, kind string) ServicePublishing {
		return ServicePublishing{Service: service, Strategy: PublishingStrategy{Type: kind}}
	}
	named := entry("APIServer", "Route")
	named.Strategy.Route = &PublishedHost{Hostname: "api.demo.example.com"}
	unnamed := entry("APIServer", "Route")
	unnamed.Strategy.Route = &PublishedHost{}
	address := entry("OAuthServer", "NodePort")
	address.Strategy.NodePort = &NodePort{Address: "192.0.2.7"}
	for _, tc := range []struct {
		name           string
		entry          ServicePublishing
		authentication string
		want           string // empty if nodes can
	}{
		{"API server by a Route without a hostname", entry("APIServer", "Route"), "", "spec.services, APIServer: HyperShift never completes an API server"},
		{"API server by a Route with an empty hostname", unnamed, "", "route.hostname is required"},
		{"API server by a Route with a hostname", named, "", ""},
		{"another service by a Route without a hostname", entry("Ignition", "Route"), "", ""},
		{"API server by a load balancer without a hostname", entry("APIServer", "LoadBalancer"), "", "loadBalancer.hostname is required"},
		{"OAuth at an address", address, "IntegratedOAuth", "nodePort.address must be a hostname"},
		{"OAuth at an address, with external OIDC", address, "OIDC", ""},
	} {
		hc := &HostedCluster{}
		hc.Spec.Services = []ServicePublishing{tc.entry}
		hc.Spec.Configuration = &HostedClusterConfiguration{Authentication: &AuthenticationConfiguration{Type: tc.authentication}}
		got := strings.Join(hc.UnreachableServices(), "\n")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
