package setup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// Advice says what is left for others to do: what HyperShift must be told, or has been told
// wrongly, and how pods of the management cluster get the names.
func Advice(k *Known, p *Plan) string {
	var b strings.Builder
	cluster := p.cluster()
	var hosted *objects.HostedCluster
	for _, hc := range k.Objects.HostedClusters {
		if hc.Namespace == p.HostedCluster.Namespace && hc.Name == p.HostedCluster.Name {
			hosted = hc
		}
	}
	switch {
	case p.Alone:
	case hosted == nil && cluster != nil && len(cluster.Domains) > 0:
		fmt.Fprintf(&b, "\nSet spec.services of the HostedCluster to:\n%s", publishing(cluster.Domains[0]))
	case hosted == nil:
		b.WriteString("\nThe HostedCluster does not exist yet. Run setup again after creating it.\n")
	default:
		for _, s := range hosted.Spec.Services {
			if why := Unreachable(s); why != "" {
				fmt.Fprintf(&b, "\nHostedCluster %s/%s, spec.services, %s: %s\n", hosted.Namespace, hosted.Name, s.Service, why)
			}
		}
	}
	return b.String()
}

// Domains are those of the hosted cluster that is set up.
func (p *Plan) Domains() []string {
	c := p.cluster()
	if c == nil || !p.Infra.Spec.InfraComponents.DNS.IsEnabled() {
		return nil
	}
	domains := slices.Clone(c.Domains)
	for _, apps := range c.AppsDomains {
		if !slices.ContainsFunc(domains, func(d string) bool { return strings.HasSuffix(apps, "."+d) }) {
			domains = append(domains, apps)
		}
	}
	return domains
}

func (p *Plan) cluster() *model.Cluster {
	if i := p.Snapshot.Infra(keyOf(p.Infra)); i != nil {
		return i.Cluster
	}
	return nil
}

// publishing are the four services that HyperShift publishes, all under the cluster's domain.
func publishing(domain string) string {
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

// Unreachable says why nodes on the VLAN do not reach a service that is published like this;
// empty where they do.
func Unreachable(s objects.ServicePublishing) string {
	switch strategy := s.Strategy; {
	case strategy.Type == "LoadBalancer" && (strategy.LoadBalancer == nil || strategy.LoadBalancer.Hostname == ""):
		return "a LoadBalancer without a hostname is dialled by its address in the management cluster, which the VLAN does not reach: it needs loadBalancer.hostname, and cannot be changed once it is set"
	case strategy.Type == "NodePort" && strategy.NodePort != nil && isAddress(strategy.NodePort.Address):
		return "a NodePort at an address is dialled by that address, which the VLAN does not reach: nodePort.address has to be a name"
	}
	return ""
}

func isAddress(host string) bool {
	_, err := v1alpha1.ParseAddress(host)
	return err == nil
}
