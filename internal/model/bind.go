package model

import (
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
)

// bind returns the hosted cluster that an Infra serves: the one that it refers to, else the one with its
// controlPlaneNamespace, else the one with the cluster domain in its spec.infraComponents.dns. If several
// match, it returns nil and reports a problem, because a guess could give one tenant the control plane of
// another. It also returns nil if none matches.
func (b *builder) bind(in *v1alpha1.Infra, ref Ref, infraDomain string) *draft {
	servedNote := ""
	if infraDomain != "" {
		servedNote = "; meanwhile the names in spec.infraComponents.dns are served"
	}
	if want, ok := namedCluster(in); ok {
		found := b.byKey[want.Key()]
		if found == nil {
			b.found.add(ref, ReasonHostedClusterNotFound, "%s does not exist%s%s", want, b.namespaceHint(in, want), servedNote)
		}
		return found
	}
	for _, rule := range []struct {
		field, value string
		index        map[string][]*draft
	}{
		{"infraComponents.proxy.controlPlaneNamespace", controlPlaneNamespace(in), b.byNamespace},
		{"infraComponents.dns.clusterName and baseDomain", infraDomain, b.byDomain},
	} {
		if rule.value == "" {
			continue
		}
		switch found := rule.index[rule.value]; {
		case len(found) == 1:
			return found[0]
		case len(found) > 1:
			b.found.add(ref, ReasonHostedClusterAmbiguous, "spec.%s %q matches the HostedClusters %s: set spec.hostedClusterRef", rule.field, rule.value, refList(found))
			return nil
		}
	}
	b.found.add(ref, ReasonHostedClusterNotFound, "no HostedCluster matches: set spec.hostedClusterRef%s", servedNote)
	return nil
}

// namespaceHint returns a hint for the message that HostedCluster want does not exist: a HostedCluster of
// that name exists in the Infra's own namespace. It returns "" if none does. A reference without a namespace
// means the namespace clusters.
func (b *builder) namespaceHint(in *v1alpha1.Infra, want Ref) string {
	other := b.byKey[in.Namespace+"/"+want.Name]
	if other == nil {
		return ""
	}
	field := "spec.hostedClusterRef"
	if !in.Spec.HostedClusterRef.IsSet() {
		field = "spec.appsIngress.hostedClusterRef"
	}
	return "; " + other.String() + " does: set " + field + ".namespace to " + in.Namespace
}

// namedCluster returns the HostedCluster that the Infra refers to, and whether it refers to any.
func namedCluster(in *v1alpha1.Infra) (Ref, bool) {
	ref := in.Spec.NamedHostedCluster()
	key := ref.NamespacedName()
	return Ref{Kind: "HostedCluster", Namespace: key.Namespace, Name: key.Name}, ref.IsSet()
}

// ownerOf returns the oldest HostedCluster with this cluster domain, or nil. An Infra never takes a domain
// from it.
func (b *builder) ownerOf(domain string) *draft {
	owners := b.byDomain[domain]
	if len(owners) == 0 {
		return nil
	}
	return slices.MinFunc(owners, compareDrafts)
}

func refList(clusters []*draft) string {
	names := make([]string, len(clusters))
	for i, c := range clusters {
		names[i] = c.Key()
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// infraDomainOf returns the cluster domain in an Infra's spec.infraComponents.dns, or "".
func infraDomainOf(in *v1alpha1.Infra, ref Ref, found *problems) string {
	text := in.Spec.InfraComponents.DNS.ClusterDomain()
	if text == "" {
		return ""
	}
	domain, _ := publishable(ref, text, "spec.infraComponents.dns", found)
	return domain
}

// controlPlaneNamespace returns the control plane's namespace in an Infra's spec, or "".
func controlPlaneNamespace(in *v1alpha1.Infra) string {
	if proxy := in.Spec.InfraComponents.Proxy; proxy != nil {
		return proxy.ControlPlaneNamespace
	}
	return ""
}

// placeholderCluster returns a cluster for an Infra whose HostedCluster does not exist yet.
func placeholderCluster(in *v1alpha1.Infra, ref Ref) *draft {
	return &draft{Cluster: &Cluster{
		Ref:                   ref,
		Created:               in.CreationTimestamp.Time,
		ControlPlaneNamespace: controlPlaneNamespace(in),
	}, apiPort: portAPI, oauth: true}
}

// addInfraDomains adds the cluster domain and the apps domain in the Infra's spec to those of the
// HostedCluster.
func (d *draft) addInfraDomains(in *v1alpha1.Infra, ref Ref, infraDomain string, found *problems) {
	if infraDomain != "" && !slices.Contains(d.Domains, infraDomain) {
		if len(d.Domains) > 0 {
			found.add(ref, ReasonDomainMismatch, "spec.infraComponents.dns has domain %s, but %s has %s: both are served", infraDomain, d.Ref, d.Domains[0])
		}
		d.addDomain(infraDomain)
		d.addAppsDomain("apps." + infraDomain)
	}
	if apps := in.Spec.AppsIngress; apps.IsEnabled() && apps.BaseDomain != "" {
		domain := apps.BaseDomain
		if !strings.HasPrefix(domain, "apps.") {
			domain = "apps." + d.shortName(in) + "." + domain
		}
		if name, ok := publishable(ref, domain, "spec.appsIngress.baseDomain", found); ok && !slices.Contains(d.AppsDomains, name) {
			if len(d.AppsDomains) > 0 {
				found.add(ref, ReasonAppsDomainMismatch, "spec.appsIngress.baseDomain yields apps domain %s, but %s has %s: both are served", name, d.Ref, strings.Join(d.AppsDomains, " and "))
			}
			d.addAppsDomain(name)
		}
	}
}

// shortName returns <cluster> of "apps.<cluster>.<baseDomain>".
func (c *Cluster) shortName(in *v1alpha1.Infra) string {
	if dns := in.Spec.InfraComponents.DNS; dns != nil && dns.ClusterName != "" {
		return dns.ClusterName
	}
	return c.Name
}
