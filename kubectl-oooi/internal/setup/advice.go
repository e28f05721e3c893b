package setup

import (
	"fmt"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// Advice returns what the user has to do after setup, as lines to print: set spec.services of a HostedCluster that does
// not exist yet, run setup again once the HostedCluster exists, or add the network to NodePools. It returns an empty
// string for a standalone ProxyServer, or if no action is required.
func Advice(k *Known, p *Plan) string {
	var b strings.Builder
	cluster := p.cluster()
	switch hosted := k.findHostedCluster(p.HostedCluster); {
	case p.Standalone:
	case hosted == nil && cluster != nil && len(cluster.Domains) > 0:
		fmt.Fprintf(&b, "\nSet spec.services of the HostedCluster to:\n%s", servicePublishing(cluster.Domains[0]))
	case hosted == nil:
		b.WriteString("\nThe HostedCluster does not exist yet. Run setup again after creating it.\n")
	}
	if k.vms.isolation.Enabled && len(k.vms.refs) == 0 {
		fmt.Fprintf(&b, "\nSet spec.platform.kubevirt.additionalNetworks of the NodePools to [{name: %s}].\n", k.vms.wanted.Attachment)
	}
	return b.String()
}

// Domains returns the domains that the cluster DNS must forward to the Infra's DNS; nil if DNS is disabled or the
// hosted cluster is unknown.
func (p *Plan) Domains() []string {
	if c := p.resolved(); c != nil {
		return p.Snapshot.ForwardedDomains(c)
	}
	return nil
}

// keptByOthers returns a warning for each domain that Domains omits.
func (p *Plan) keptByOthers() []string {
	c := p.resolved()
	if c == nil {
		return nil
	}
	var list []string
	for _, domain := range c.Domains {
		if older := p.Snapshot.KeeperOf(c, domain); older != nil {
			list = append(list, fmt.Sprintf("the cluster's DNS must not forward %s to this Infra: the domain lies in an apps domain of %s, which is older and keeps its names; pods of the management cluster cannot resolve the names of %s. Choose a HostedCluster name or base domain outside of the apps domains of others", domain, older.Ref, c.Ref))
		}
	}
	return list
}

// resolved returns the hosted cluster whose names the Infra's DNS resolves; nil if it is unknown or DNS is disabled.
func (p *Plan) resolved() *model.Cluster {
	if !p.Infra.Spec.InfraComponents.DNS.IsEnabled() {
		return nil
	}
	return p.cluster()
}

func (p *Plan) cluster() *model.Cluster {
	if i := p.Snapshot.Infra(keyOf(p.Infra)); i != nil {
		return i.Cluster
	}
	return nil
}

// servicePublishing returns the entries of spec.services for the four services that HyperShift publishes, as YAML.
func servicePublishing(domain string) string {
	return fmt.Sprintf(`  - service: APIServer
    servicePublishingStrategy: {type: LoadBalancer, loadBalancer: {hostname: api.%[1]s}}
  - service: OAuthServer
    servicePublishingStrategy: {type: Route, route: {hostname: oauth.%[1]s}}
  - service: Konnectivity
    servicePublishingStrategy: {type: Route, route: {hostname: konnectivity.%[1]s}}
  - service: Ignition
    servicePublishingStrategy: {type: Route, route: {hostname: ignition.%[1]s}}
`, domain)
}

// UnreachableServices returns a text for each service of a HostedCluster that nodes on the VLAN cannot reach as it is
// published: the entry of spec.services, why, and which field is wrong.
func UnreachableServices(hc *objects.HostedCluster) []string {
	var list []string
	for _, s := range hc.Spec.Services {
		if s.Service == "OAuthServer" && !hc.HasOAuth() {
			continue // HyperShift requires the entry and ignores it
		}
		if why := unreachable(s); why != "" {
			list = append(list, "spec.services, "+s.Service+": "+why)
		}
	}
	return list
}

func unreachable(s objects.ServicePublishing) string {
	switch strategy := s.Strategy; {
	case strategy.Type == "LoadBalancer" && (strategy.LoadBalancer == nil || strategy.LoadBalancer.Hostname == ""):
		return "nodes connect to the address of the load balancer in the management cluster, which the VLAN does not reach; loadBalancer.hostname is required, and can be set only when the HostedCluster is created"
	case strategy.Type == "NodePort" && strategy.NodePort != nil && isAddress(strategy.NodePort.Address):
		return "nodes connect to the IP address in nodePort.address, which the VLAN does not reach; nodePort.address must be a hostname"
	case s.Service == "APIServer" && strategy.Type == "Route" && (strategy.Route == nil || strategy.Route.Hostname == ""):
		return "HyperShift never completes an API server that is published by a Route without a hostname, as 'hypershift create cluster' does with --external-dns-domain; route.hostname is required, and can be set only when the HostedCluster is created"
	}
	return ""
}

func isAddress(host string) bool {
	_, err := v1alpha1.ParseAddress(host)
	return err == nil
}
