package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/registry"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

var noLoop = Check{
	Code: "OOOI-DNS-003", Title: "the upstream resolvers are not the cluster's DNS", InfraOnly: true, Component: v1alpha1.ComponentDNS, Run: checkLoop,
	Reads: slices.Concat(site.In(site.AtInfra, site.Infras), site.In(site.AtClusterDNS, site.Services)),
	About: "The cluster's DNS forwards the hosted cluster's domain to oooi's DNS. Queries for unknown names loop if oooi's DNS forwards them back.",
}

func checkLoop(s *Site) []Finding {
	if !s.enabled(v1alpha1.ComponentDNS) {
		return nil
	}
	var findings []Finding
	for _, service := range site.All[corev1.Service](s.Site, site.Services, site.AtClusterDNS) {
		key := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
		for _, upstream := range s.Infra.Spec.NetworkConfig.DNSServers {
			if slices.Contains(setup.ClusterResolvers(), key) && slices.Contains(service.Spec.ClusterIPs, upstream) {
				findings = append(findings, failed(s.Ref(), "replace the address with the upstream resolvers of your network",
					"networkConfig.dnsServers contains %s, the address of the cluster's DNS (Service %s), which forwards to oooi's DNS: queries for unknown names "+
						"loop", upstream, key))
			}
		}
	}
	return findings
}

var upstreamsAnswer = problemCheck(Check{
	Code: "OOOI-DNS-007", Title: "the upstream resolvers answer", InfraOnly: true, Component: v1alpha1.ComponentDNS,
	About: "oooi's DNS forwards names outside of the hosted cluster to `networkConfig.dnsServers`, or to the node's resolvers. VMs cannot pull images if " +
		"none answers.",
})

var dnsReady = conditionCheck(Check{
	Code: "OOOI-DNS-001", Title: "DNS answers", Component: v1alpha1.ComponentDNS,
	About: "Condition DNSReady: every replica answers control's query for a control-plane name as expected.",
}, v1alpha1.ConditionDNSReady)

var namesServed = conditionCheck(Check{
	Code: "OOOI-DNS-002", Title: "control-plane names are served", Component: v1alpha1.ComponentDNS,
	About: "Condition NamesServed: the control-plane names are known and valid, and each belongs to one service. `kubectl oooi resolve NAME` shows the " +
		"response of each view and its source.",
}, v1alpha1.ConditionNamesServed)

var domainForwarded = Check{
	Code: "OOOI-DNS-004", Title: "the cluster's DNS forwards the hosted cluster's domain to oooi's " +
		"DNS", InfraOnly: true, Component: v1alpha1.ComponentDNS, Run: checkForwarded,
	Reads: slices.Concat(site.In(site.AtInfra, site.Services), site.In(site.Everywhere, site.DNSOperators), site.In(site.AtClusterDNS, site.ConfigMaps)),
	About: "Pods of the management cluster, such as HyperShift's, resolve names of the hosted cluster by the cluster's DNS: the Corefile of CoreDNS, or " +
		"`dns.operator/default` of OpenShift.",
}

func checkForwarded(s *Site) []Finding {
	if !s.enabled(v1alpha1.ComponentDNS) || s.Cluster == nil {
		return nil
	}
	service := s.Infra.Name + "-" + v1alpha1.ComponentDNS
	addresses := s.dnsAddresses()
	corefiles := map[types.NamespacedName]string{}
	for _, c := range site.All[corev1.ConfigMap](s.Site, site.ConfigMaps, site.AtClusterDNS) {
		if text, ok := c.Data["Corefile"]; ok {
			corefiles[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = text
		}
	}
	var forwarders []read.Forwarder
	var ref model.Ref
	remedy := "run 'kubectl oooi setup -f FILE' with --cluster-dns=patch, or add the forwarder manually"
	operators := s.List(site.DNSOperators, site.Everywhere)
	switch text, plain := corefiles[site.CoreConfig]; {
	case len(operators) > 0:
		ref = model.Ref{Kind: site.DNSOperators.Kind, Name: "default"}
		for _, u := range operators {
			forwarders = append(forwarders, read.OperatorForwarders(u)...)
		}
		// The operator writes this Corefile from its own object, unless its managementState is Unmanaged.
		if written, ok := corefiles[site.OperatorConfig]; ok && len(s.missingDomains(forwarders, addresses)) == 0 {
			ref = model.Ref{Kind: site.ConfigMaps.Kind, Namespace: site.OperatorConfig.Namespace, Name: site.OperatorConfig.Name}
			forwarders = read.CorefileForwarders(written)
			remedy = "find out why the DNS operator does not update the ConfigMap: kubectl get clusteroperator dns, and spec.managementState of dns.operator/default"
		}
	case plain:
		ref = model.Ref{Kind: site.ConfigMaps.Kind, Namespace: site.CoreConfig.Namespace, Name: site.CoreConfig.Name}
		forwarders = read.CorefileForwarders(text)
	default:
		return nil // another DNS server
	}
	var findings []Finding
	for _, domain := range s.missingDomains(forwarders, addresses) {
		findings = append(findings, warned(ref, remedy, "the cluster's DNS does not forward %s to Service %s/%s: pods of the management cluster cannot "+
			"resolve control-plane names", domain, s.Infra.Namespace, service).
			withEvidence(fmt.Sprintf("DNS Service addresses: %v", addresses)))
	}
	return findings
}

var registryReached = Check{
	Code: "OOOI-DNS-009", Title: "VMs reach a registry of the release image", InfraOnly: true, Component: componentVMs, Run: checkRegistry,
	Reads: slices.Concat(site.In(site.AtInfra, site.Infras, site.ProxyServers), hostedReads, site.In(site.AtHosted, site.NodePools),
		site.In(site.AtControlPlane, site.VMIs)),
	About: "VMs pull images from the registry of `spec.release.image` of the HostedCluster, or from its mirrors in `spec.imageContentSources`. On the VLAN, " +
		"DNS must resolve one of these names, to the proxy (`spec.egress`), to an address on the VLAN, or to one that VMs reach by the router " +
		"(`networkConfig.gateway`). The check reads objects only, and warns if the upstream resolvers may know an address on the VLAN. It passes if nodes use " +
		"an HTTP proxy, if DHCP sends no DNS servers, and if all VMs have an interface on another network that may have a default route. " +
		"`kubectl oooi test --only egress` requests the registry.",
}

func checkRegistry(s *Site) []Finding {
	list, _ := registry.OfSite(s.Site)
	if len(list) == 0 || registry.Reached(list) != nil {
		return nil
	}
	r := list[0]
	report := warned
	if !slices.ContainsFunc(list, func(r *registry.Registry) bool { return !r.Denied }) {
		report = failed
	}
	f := report(s.Ref(), r.Remedy, "VMs cannot pull the release image from %s: %s", r, r.Missing)
	for _, other := range list[1:] {
		f = f.withEvidence(fmt.Sprintf("%s: %s", other, other.Missing))
	}
	return []Finding{f}
}

// dnsAddresses returns the cluster IPs of the DNS Services of all Infras that serve the hosted cluster. Each resolves the cluster's
// names for pods.
func (s *Site) dnsAddresses() []string {
	var addresses []string
	for _, i := range s.Snapshot.Infras {
		if i.Cluster == nil || i.Cluster.Ref != s.Cluster.Ref {
			continue
		}
		for _, a := range s.Snapshot.ServiceIPs(i.Key() + "-" + v1alpha1.ComponentDNS) {
			addresses = append(addresses, a.String())
		}
	}
	return addresses
}

// missingDomains returns the domains that the cluster's DNS must forward to one of the addresses, and does not.
func (s *Site) missingDomains(forwarders []read.Forwarder, addresses []string) []string {
	return slices.DeleteFunc(s.Snapshot.ForwardedDomains(s.Cluster), func(domain string) bool {
		return slices.ContainsFunc(forwarders, func(f read.Forwarder) bool {
			return f.ForwardsTo(addresses) && slices.ContainsFunc(f.Zones, func(zone string) bool {
				return domain == zone || strings.HasSuffix(domain, "."+zone)
			})
		})
	})
}
