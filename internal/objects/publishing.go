package objects

import "net/netip"

// UnreachableServices returns a text for each service of a HostedCluster that nodes on a VLAN cannot reach as it is
// published: the entry of spec.services, why, and which field is wrong.
func (hc *HostedCluster) UnreachableServices() []string {
	var list []string
	for _, s := range hc.Spec.Services {
		if s.Service == "OAuthServer" && !hc.HasOAuth() {
			continue // HyperShift requires the entry and ignores it
		}
		if why := s.unreachable(); why != "" {
			list = append(list, "spec.services, "+s.Service+": "+why)
		}
	}
	return list
}

func (s ServicePublishing) unreachable() string {
	switch strategy := s.Strategy; {
	case strategy.Type == "LoadBalancer" && (strategy.LoadBalancer == nil || strategy.LoadBalancer.Hostname == ""):
		return "nodes connect to the address of the load balancer in the management cluster, which the VLAN does not reach; loadBalancer.hostname is " +
			"required, and can be set only when the HostedCluster is created"
	case strategy.Type == "NodePort" && strategy.NodePort != nil && isAddress(strategy.NodePort.Address):
		return "nodes connect to the IP address in nodePort.address, which the VLAN does not reach; nodePort.address must be a hostname"
	case s.Service == "APIServer" && strategy.Type == "Route" && (strategy.Route == nil || strategy.Route.Hostname == ""):
		return "HyperShift never completes an API server that is published by a Route without a hostname, as 'hypershift create cluster' does with " +
			"--external-dns-domain; route.hostname is required, and can be set only when the HostedCluster is created"
	}
	return ""
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
