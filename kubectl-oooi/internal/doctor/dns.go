package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

var noLoop = Check{
	Code: "OOOI-DNS-003", Title: "the upstream resolvers are not the cluster's DNS", InfraOnly: true, Component: v1alpha1.ComponentDNS, Run: checkLoop,
	Reads: slices.Concat(site.In(site.AtInfra, site.Infras), site.In(site.AtClusterDNS, site.Services)),
	About: "The cluster's DNS forwards the hosted cluster's domain to oooi's DNS. If oooi's DNS forwards back, queries for unknown names loop.",
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
	About: "Names outside of the hosted cluster are forwarded to `networkConfig.dnsServers`, or to the resolvers of the node. VMs cannot pull images if " +
		"none answers.",
})

var dnsReady = conditionCheck(Check{
	Code: "OOOI-DNS-001", Title: "DNS answers", Component: v1alpha1.ComponentDNS,
	About: "Condition DNSReady: every replica answers control's query for a control-plane name as expected.",
}, v1alpha1.ConditionDNSReady)

var namesServed = conditionCheck(Check{
	Code: "OOOI-DNS-002", Title: "control-plane names are served", Component: v1alpha1.ComponentDNS,
	About: "Condition NamesServed: the names of the control plane are known, valid and lead to one service each. `kubectl oooi resolve NAME` shows the " +
		"answer of each view and its source.",
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
	var addresses []string
	for _, o := range site.All[corev1.Service](s.Site, site.Services, site.AtInfra) {
		if o.Name == service {
			addresses = o.Spec.ClusterIPs
		}
	}
	corefiles := map[types.NamespacedName]string{}
	for _, c := range site.All[corev1.ConfigMap](s.Site, site.ConfigMaps, site.AtClusterDNS) {
		if text, ok := c.Data["Corefile"]; ok {
			corefiles[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = text
		}
	}
	var zones []string
	var ref model.Ref
	remedy := "run 'kubectl oooi setup -f FILE' with --cluster-dns=patch, or add the forwarder manually"
	operators := s.List(site.DNSOperators, site.Everywhere)
	switch text, plain := corefiles[site.CoreConfig]; {
	case len(operators) > 0:
		ref = model.Ref{Kind: site.DNSOperators.Kind, Name: "default"}
		zones = operatorZones(operators, addresses)
		// The operator writes this Corefile from its own object, unless its managementState is Unmanaged.
		if written, ok := corefiles[site.OperatorConfig]; ok && len(s.missingDomains(zones)) == 0 {
			ref = model.Ref{Kind: site.ConfigMaps.Kind, Namespace: site.OperatorConfig.Namespace, Name: site.OperatorConfig.Name}
			zones = corefileZones(written, addresses)
			remedy = "find out why the DNS operator does not update the ConfigMap: kubectl get clusteroperator dns, and spec.managementState of dns.operator/default"
		}
	case plain:
		ref = model.Ref{Kind: site.ConfigMaps.Kind, Namespace: site.CoreConfig.Namespace, Name: site.CoreConfig.Name}
		zones = corefileZones(text, addresses)
	default:
		return nil // another DNS server
	}
	var findings []Finding
	for _, domain := range s.missingDomains(zones) {
		findings = append(findings, warned(ref, remedy, "the cluster's DNS does not forward %s to Service %s/%s: pods of the management cluster cannot "+
			"resolve control-plane names", domain, s.Infra.Namespace, service).
			because(fmt.Sprintf("addresses of the Service: %v", addresses)))
	}
	return findings
}

// operatorZones returns the zones that OpenShift's DNS operator forwards to one of the addresses.
func operatorZones(operators []*unstructured.Unstructured, addresses []string) []string {
	var zones []string
	for _, u := range operators {
		servers, _, _ := unstructured.NestedSlice(u.Object, "spec", "servers")
		for _, server := range servers {
			server, _ := server.(map[string]any)
			upstreams, _, _ := unstructured.NestedStringSlice(server, "forwardPlugin", "upstreams")
			if slices.ContainsFunc(upstreams, func(to string) bool { return isUpstream(to, addresses) }) {
				names, _, _ := unstructured.NestedStringSlice(server, "zones")
				zones = append(zones, names...)
			}
		}
	}
	return zones
}

// missingDomains returns the domains that the cluster's DNS must forward and that no zone covers.
func (s *Site) missingDomains(zones []string) []string {
	return slices.DeleteFunc(s.Snapshot.ForwardedDomains(s.Cluster), func(domain string) bool {
		return slices.ContainsFunc(zones, func(zone string) bool { return domain == zone || strings.HasSuffix(domain, "."+zone) })
	})
}

// isUpstream reports whether an upstream, "address" or "address:port", is one of the addresses.
func isUpstream(upstream string, addresses []string) bool {
	return slices.ContainsFunc(addresses, func(a string) bool {
		return upstream == a || upstream == a+":53" || upstream == "["+a+"]:53"
	})
}

// corefileZones returns the zones of the server blocks in a Corefile that forward to one of the addresses.
func corefileZones(corefile string, addresses []string) []string {
	var zones, block []string
	for line := range strings.Lines(corefile) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[len(words)-1] == "{" && line[0] != ' ' && line[0] != '\t':
			block = words[:len(words)-1]
		case words[0] == "forward" && slices.ContainsFunc(words, func(w string) bool { return isUpstream(w, addresses) }):
			for _, zone := range block {
				zone, _, _ = strings.Cut(strings.TrimSuffix(zone, ","), ":")
				zones = append(zones, strings.TrimSuffix(zone, "."))
			}
		}
	}
	return zones
}
