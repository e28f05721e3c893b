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
	if named := in.Spec.NamedHostedCluster(); named.IsSet() {
		candidates := named.Candidates(in.Namespace)
		for _, candidate := range candidates {
			if found := b.byKey[candidate.String()]; found != nil {
				return found
			}
		}
		want := candidates[len(candidates)-1]
		where := ""
		if len(candidates) > 1 {
			where = " and neither does one of that name in namespace " + in.Namespace
		}
		b.found.add(ref, ReasonHostedClusterNotFound, "HostedCluster %s does not exist%s%s%s", want, where,
			b.namespaceHint(in, want.String(), "; ", " does: "), servedNote)
		return nil
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
			b.found.add(ref, ReasonHostedClusterAmbiguous, "spec.%s %q matches the HostedClusters %s; set spec.hostedClusterRef", rule.field, rule.value, refList(found))
			return nil
		}
	}
	if !in.Spec.OnlyDHCP() {
		b.found.add(ref, ReasonHostedClusterNotFound, "no HostedCluster matches; set spec.hostedClusterRef%s", servedNote)
	}
	return nil
}

// namespaceHint returns a hint for a message about the HostedCluster served, "namespace/name", that the Infra refers to, if
// another one of that name exists in the Infra's own namespace: prefix, that HostedCluster, infix, and how to refer to it.
func (b *builder) namespaceHint(in *v1alpha1.Infra, served, prefix, infix string) string {
	named := in.Spec.NamedHostedCluster()
	if !named.IsSet() {
		return ""
	}
	own := b.byKey[in.Namespace+"/"+named.Name]
	if own == nil || own.Key() == served {
		return ""
	}
	field := "spec.hostedClusterRef"
	if !in.Spec.HostedClusterRef.IsSet() {
		field = "spec.appsIngress.hostedClusterRef"
	}
	return prefix + own.String() + infix + "set " + field + ".namespace to " + in.Namespace
}

// notChosen returns why an Infra serves a HostedCluster although its reference may mean another one, which exists, too; ""
// if it does not.
func (b *builder) notChosen(in *v1alpha1.Infra, cluster *draft) string {
	for _, candidate := range in.Spec.NamedHostedCluster().Candidates(in.Namespace) {
		if other := b.byKey[candidate.String()]; other != nil && cluster != nil && other != cluster {
			return "the reference lacks a namespace, so the HostedCluster in the Infra's namespace is served; " + other.String() + " exists, too"
		}
	}
	return ""
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

// addInfraDomains adds the cluster domain and the apps domain in the Infra's spec to the HostedCluster's domains.
func (d *draft) addInfraDomains(in *v1alpha1.Infra, ref Ref, infraDomain string, found *problems) {
	if infraDomain != "" && !slices.Contains(d.Domains, infraDomain) {
		if len(d.Domains) > 0 {
			found.add(ref, ReasonDomainMismatch, "spec.infraComponents.dns has domain %s, but %s has %s: both are served", infraDomain, d.Ref, d.Domains[0])
		}
		d.addDomain(infraDomain)
		d.addAppsDomain("apps." + infraDomain)
	}
	if apps := infraAppsDomainOf(in, ref, found); apps != "" && !slices.Contains(d.AppsDomains, apps) {
		if len(d.AppsDomains) > 0 {
			found.add(ref, ReasonAppsDomainMismatch, "spec.appsIngress.baseDomain yields apps domain %s, but %s has %s: both are served",
				apps, d.Ref, strings.Join(d.AppsDomains, " and "))
		}
		d.addAppsDomain(apps)
	}
}

// infraAppsDomainOf returns the apps domain in an Infra's spec.appsIngress, or "". Unless the base domain is one itself, its
// middle label is the cluster's name.
func infraAppsDomainOf(in *v1alpha1.Infra, ref Ref, found *problems) string {
	apps := in.Spec.AppsIngress
	if !apps.IsEnabled() || apps.BaseDomain == "" {
		return ""
	}
	domain := apps.BaseDomain
	if !strings.HasPrefix(domain, "apps.") {
		name := in.Name
		if named := in.Spec.NamedHostedCluster(); named.IsSet() {
			name = named.Name
		}
		if dns := in.Spec.InfraComponents.DNS; dns != nil && dns.ClusterName != "" {
			name = dns.ClusterName
		}
		domain = "apps." + name + "." + domain
	}
	name, _ := publishable(ref, domain, "spec.appsIngress.baseDomain", found)
	return name
}
