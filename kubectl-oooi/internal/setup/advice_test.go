package setup

import (
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/objects"
)

func TestServicesThatNodesCannotReach(t *testing.T) {
	entry := func(service, kind string) objects.ServicePublishing {
		return objects.ServicePublishing{Service: service, Strategy: objects.PublishingStrategy{Type: kind}}
	}
	named := entry("APIServer", "Route")
	named.Strategy.Route = &objects.PublishedHost{Hostname: "api.demo.example.com"}
	unnamed := entry("APIServer", "Route")
	unnamed.Strategy.Route = &objects.PublishedHost{}
	address := entry("OAuthServer", "NodePort")
	address.Strategy.NodePort = &objects.NodePort{Address: "192.0.2.7"}
	for _, tc := range []struct {
		name           string
		entry          objects.ServicePublishing
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
		hc := &objects.HostedCluster{}
		hc.Spec.Services = []objects.ServicePublishing{tc.entry}
		hc.Spec.Configuration = &objects.HostedClusterConfiguration{Authentication: &objects.AuthenticationConfiguration{Type: tc.authentication}}
		got := strings.Join(UnreachableServices(hc), "\n")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
